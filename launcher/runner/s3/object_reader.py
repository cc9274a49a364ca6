"""Read objects of a bucket over connections that stay open, and write them to files.

botocore finds the credentials and signs; its client would take nearly three times the processor time for each small
file (docs/decisions/118).
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session
from botocore.response import StreamingBody
from botocore.utils import get_environ_proxies

from launcher.errors import LaunchError
from launcher.runner.s3.checksum import Checksum
from launcher.runner.s3.denied import explain_denial, is_denied
from launcher.runner.s3.listing import Address, new_session
from launcher.runner.s3.throttling import is_throttled, pause, report

BLOCK: Final = 1 << 20
"""Bytes that are written at once."""
ATTEMPTS: Final = 6
"""Attempts at a request that fails; a throttled request uses up no attempt."""
MAX_BACKOFF_S: Final = 5.0
"""Longest back-off before another attempt, in seconds; a throttled request may wait longer."""
CONNECT_AND_READ_TIMEOUT_S: Final = (5, 60)
"""Longest waits for a connection and for the next bytes, in seconds."""
SERVER_ERROR: Final = 500
WHOLE: Final = 200
RANGE: Final = 206
REPLACED: Final = 412
"""Statuses of S3's answers; 412 means another entity tag."""
TRANSIENT_CODES: Final = frozenset({"RequestTimeout", "RequestTimeoutException"})
"""Codes of 4xx answers that another attempt may mend."""
ARCHIVED_CODE: Final = "InvalidObjectState"
RESTORE: Final = "restore it first (aws s3api restore-object)"
ERROR_BYTES: Final = 64 << 10
"""Bytes that are read of an answer with an error."""


class _RetryableError(Exception):
    """A request failed in a way that another attempt may mend."""


class _ThrottledError(Exception):
    """S3 or KMS asks for fewer requests."""


class ObjectReader:
    """Client that requests objects; any number of threads may use it."""

    def __init__(self, address: Address, *, connections: int) -> None:
        session = new_session()
        self._address = address
        credentials = session.get_credentials()
        if credentials is None:
            raise LaunchError(f"s3://{address.bucket}: this node has no credentials")
        self._credentials = credentials
        # As botocore's client does it; its type stubs know fewer types.
        settings: dict[str, Any] = {
            "verify": session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE", True),
            "proxies": get_environ_proxies(address.url),
            "timeout": CONNECT_AND_READ_TIMEOUT_S,
            "max_pool_connections": connections,
        }
        self._http = URLLib3Session(**settings)

    def read_whole(self, key: str, file: int, *, etag: str) -> int:
        """Write an object into an empty file; return its size.

        Raises LaunchError if the object is no longer the one with this entity tag.
        """
        count = self._repeat(key, {"x-amz-checksum-mode": "ENABLED", "If-Match": etag}, file, start=0)
        # An attempt that failed may have written more.
        os.ftruncate(file, count)
        return count

    def read_range(self, key: str, file: int, *, start: int, stop: int, etag: str) -> int:
        """Write a range of an object to the same place in a file; return the number of bytes.

        Raises LaunchError if the object is no longer the one with this entity tag.
        """
        headers = {"Range": f"bytes={start}-{stop - 1}", "If-Match": etag}
        count = self._repeat(key, headers, file, start=start)
        if count != stop - start:
            raise LaunchError(f"s3://{self._address.bucket}/{key}: {count} bytes arrived of a range of {stop - start}")
        return count

    def _repeat(self, key: str, headers: Mapping[str, str], file: int, *, start: int) -> int:
        """Make attempts until one succeeds; LaunchError with the last reason, but never because of throttling."""
        failures = throttles = 0
        while True:
            try:
                return self._copy(key, headers, file, start=start)
            except _ThrottledError as error:
                throttles += 1
                report(str(error))
                pause(throttles)
            except (_RetryableError, BotoCoreError) as error:
                failures += 1
                if failures == ATTEMPTS:
                    reason = " ".join(str(error).split())
                    raise LaunchError(f"s3://{self._address.bucket}/{key}: {reason}, {ATTEMPTS} attempts") from error
                pause(failures, longest_s=MAX_BACKOFF_S)

    def _copy(self, key: str, headers: Mapping[str, str], file: int, *, start: int) -> int:
        response: Any = self._http.send(self._signed(key, headers))
        if response.status_code != (RANGE if "Range" in headers else WHOLE):
            self._refuse(key, response)
        checksum, at = Checksum(response.headers if response.status_code == WHOLE else {}), start
        # It raises an error of botocore if fewer bytes arrive.
        body = StreamingBody(response.raw, response.headers["Content-Length"])
        try:
            while block := body.read(BLOCK):
                checksum.update(block)
                view = memoryview(block)
                while view:
                    written = os.pwrite(file, view, at)
                    at, view = at + written, view[written:]
        except BaseException:
            # The rest of the answer must not precede the next one.
            body.close()
            raise
        if not checksum.matches():
            raise _RetryableError("arrived damaged")
        return at - start

    def _signed(self, key: str, headers: Mapping[str, str]) -> Any:
        url = f"{self._address.url}{quote(key, safe='/~')}"
        request = AWSRequest(method="GET", url=url, headers=dict(headers), stream_output=True)
        # The credentials renew themselves here before they expire.
        frozen = self._credentials.get_frozen_credentials()
        S3SigV4Auth(frozen, "s3", self._address.region).add_auth(request)
        return request.prepare()

    def _refuse(self, key: str, response: Any) -> None:
        """Raise the error that the answer describes."""
        body = StreamingBody(response.raw, response.headers.get("Content-Length"))
        data = body.read(ERROR_BYTES)
        # The rest of the answer must not precede the next one.
        body.close()
        match = re.search(rb"<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?", data, re.DOTALL)
        code, *message = [word.decode(errors="replace") for word in match.groups() if word] if match else [""]
        reason = ": ".join([code, *message]) or f"HTTP status {response.status_code}"
        if is_throttled(response.status_code, code):
            raise _ThrottledError(code or reason)
        if response.status_code >= SERVER_ERROR or code in TRANSIENT_CODES:
            raise _RetryableError(reason)
        if response.status_code == REPLACED:
            reason = "was replaced while it was fetched; run the same line again"
        elif code == ARCHIVED_CODE:
            reason = f"archived, {RESTORE}"
        elif is_denied(code):
            reason = explain_denial(f"{self._address.bucket}/{key}".rpartition("/")[0], "".join(message))
        raise LaunchError(f"s3://{self._address.bucket}/{key}: {reason}")
