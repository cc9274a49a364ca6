"""Serve objects as a bucket of S3, with faults, for tests of what a node fetches."""

import hashlib
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, quote, unquote
from xml.sax.saxutils import escape

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

MODIFIED_S = 1_760_000_000
LISTED_AS = "2025-10-09T08:53:20.000Z"
SECRETS = {"test": "test", "a": "b"}
"""Secret key of each access key."""
PAGE = 2
"""Objects in a page of a listing."""


@dataclass(frozen=True)
class Answer:
    """An answer instead of the object; `cut` leaves out the end of the body."""

    status: int
    body: bytes = b""
    cut: int = 0
    fields: dict[str, str] = field(default_factory=dict)


@dataclass
class Bucket:
    """The objects by key, and the requests for them."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    """Elements of an object in a listing that tell its storage class."""
    damaged: set[str] = field(default_factory=set)
    """Keys of objects that lose a byte on their way."""
    etags: dict[str, str] = field(default_factory=dict)
    """Entity tags of objects other than their MD5."""
    encryption: str = "AES256"
    has_crc: bool = True
    """True if S3 has the objects' CRC-32."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Key and range of each GetObject, in any order."""
    fault: Callable[[str, str], Answer | None] = lambda key, wanted: None
    """Returns another answer to a request for a key and a range."""
    listing_fault: Callable[[str], Answer | None] = lambda after: None
    """Returns another answer to a request for the page after a key."""
    metadata_faults: int = 0
    """Requests for the instance's metadata that fail from now on."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def write_settings(self, home: Path) -> None:
        """Write the files from which a user's session takes the same settings."""
        (home / ".aws").mkdir()
        service = f"[services test]\ns3 =\n  endpoint_url = {self.url}\n"
        (home / ".aws/config").write_text(f"[default]\nregion = us-east-1\nservices = test\n{service}")
        (home / ".aws/credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")

    def listing(self, prefix: str, after: str) -> Answer:
        """Return a page; its token is the last key of the page before."""
        if (other := self.listing_fault(after)) is not None:
            return other
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        shown = keys[:PAGE]
        contents = "".join(
            f"<Contents><Key>{quote(key)}</Key><LastModified>{LISTED_AS}</LastModified><ETag>{self.etag(key)}</ETag>"
            f"<Size>{len(self.objects[key])}</Size>{self.classes.get(key, '')}</Contents>"
            for key in shown
        )
        is_truncated = len(keys) > len(shown)
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if is_truncated else ""
        text = (
            f"<ListBucketResult><KeyCount>{len(shown)}</KeyCount><EncodingType>url</EncodingType>"
            f"<IsTruncated>{str(is_truncated).lower()}</IsTruncated>{token}{contents}</ListBucketResult>"
        )
        return Answer(200, text.encode())

    def etag(self, key: str) -> str:
        return self.etags.get(key, f'"{hashlib.md5(self.objects[key], usedforsecurity=False).hexdigest()}"')

    def metadata(self, path: str) -> Answer:
        """Answer as an instance whose role is "role"."""
        if self.metadata_faults:
            self.metadata_faults -= 1
            return Answer(500)
        if path.endswith("/security-credentials/"):
            return Answer(200, b"role")
        if not path.endswith("/role"):
            return Answer(200, b"token")
        names = ("AccessKeyId", "SecretAccessKey", "Token")
        values = {**dict.fromkeys(names, "test"), "Code": "Success", "Expiration": "2999-01-01T00:00:00Z"}
        return Answer(200, json.dumps(values).encode())

    def get(self, key: str, wanted: str, match: str | None, *, has_checksum: bool) -> Answer:
        self.requests.append((key, wanted))
        if (other := self.fault(key, wanted)) is not None:
            return other
        body, fields = self.objects[key], {"ETag": self.etag(key), "x-amz-server-side-encryption": self.encryption}
        if match not in {None, self.etag(key)}:
            return Answer(412, b"<Error><Code>PreconditionFailed</Code><Message>It has changed</Message></Error>")
        if found := re.fullmatch(r"bytes=(\d+)-(\d+)", wanted):
            return Answer(206, body[int(found[1]) : int(found[2]) + 1], fields=fields)
        if has_checksum and self.has_crc:
            fields["x-amz-checksum-crc32"] = b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
        if key in self.damaged:
            body = b"?" + body[1:]
        return Answer(200, body, fields=fields)


def is_signed(target: str, headers: Message) -> bool:
    """Return True if the signature is that of S3, which encodes the key itself before it compares."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(.*?)/.*?/(.*?)/s3/.*, SignedHeaders=(.*), Signature=(.*)",
        headers["Authorization"],
    )
    assert found is not None
    path, mark, query = target.partition("?")
    url = f"http://{headers['Host']}{quote(unquote(path), safe='/-_.~')}{mark}{query}"
    request = AWSRequest("GET", url, headers={name: headers[name] for name in found[3].split(";")})
    request.context["timestamp"] = headers["X-Amz-Date"]
    auth = S3SigV4Auth(Credentials(found[1], SECRETS[found[1]]), "s3", found[2])
    return bool(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request) == found[4])


@contextmanager
def running_bucket() -> Iterator[Bucket]:
    """Serve an empty bucket of any name."""
    bucket = Bucket()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self._send(bucket.metadata(self.path))

        def do_GET(self) -> None:
            if self.path.startswith("/latest/"):
                self._send(bucket.metadata(self.path))
                return
            path, _, query = self.path.partition("?")
            key = unquote(path).removeprefix("/").partition("/")[2]
            if not is_signed(self.path, self.headers):
                self._send(Answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"))
            elif key:
                wanted, match = self.headers.get("Range", ""), self.headers.get("If-Match")
                has_checksum = self.headers.get("x-amz-checksum-mode") == "ENABLED"
                self._send(bucket.get(key, wanted, match, has_checksum=has_checksum))
            else:
                values = {name: found[0] for name, found in parse_qs(query).items()}
                self._send(bucket.listing(values.get("prefix", ""), values.get("continuation-token", "")))

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            fields = {"Last-Modified": formatdate(MODIFIED_S, usegmt=True), "Content-Length": str(len(answer.body))}
            for name, value in {**fields, **answer.fields}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body[: len(answer.body) - answer.cut])
            self.close_connection = bool(answer.cut)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        bucket.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield bucket
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
