"""Test how a file in S3 is read: with which credentials, from which region, and from an S3 that breaks."""

import io
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from botocore.exceptions import ClientError, ResponseStreamingError

from trainer import s3
from trainer.data.images import s3_object
from trainer.data.images.s3_object import S3Object, connect
from trainer.errors import TrainerError


class BusyMetadataService(BaseHTTPRequestHandler):
    """Answers of a machine's metadata service, of which the first are 503."""

    refusals = 4

    def do_PUT(self) -> None:
        self.answer("token")

    def do_GET(self) -> None:
        if self.path.endswith("/security-credentials/"):
            return self.answer("role")
        keys = {"AccessKeyId": "key", "SecretAccessKey": "s", "Token": "t", "Expiration": "2099-01-01T00:00:00Z"}
        return self.answer(json.dumps({"Code": "Success", **keys}))

    def answer(self, text: str) -> None:
        cls = type(self)
        status, cls.refusals = (503 if cls.refusals else 200), max(0, cls.refusals - 1)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_instance_credentials_are_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(BusyMetadataService, "refusals", 4)
    with ThreadingHTTPServer(("127.0.0.1", 0), BusyMetadataService) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        client = connect(connections=1)
        server.shutdown()
    assert client._request_signer._credentials.access_key == "key"
    # Each rank would log where its credentials come from.
    assert not logging.getLogger("botocore.credentials").isEnabledFor(logging.INFO)


class _SentError(Exception):
    """The first request was about to be sent."""


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({}, "bucket.s3.cn-north-1.amazonaws.com.cn"),
        ({"AWS_DEFAULT_REGION": "us-gov-west-1"}, "bucket.s3.us-gov-west-1.amazonaws.com"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-gov-west-1"}, "bucket.s3.eu-west-1.amazonaws.com"),
    ],
    ids=["node", "default", "both"],
)
def test_first_request_goes_to_the_region_of_the_user_or_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], host: str
) -> None:
    config = tmp_path / "node.json"
    config.write_text(json.dumps({"region": "cn-north-1"}))
    monkeypatch.setattr(s3, "NODE_CONFIG_FILE", config)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_CONFIG_FILE": os.devnull}
    for name, value in {**keys, **variables}.items():
        monkeypatch.setenv(name, value)
    sent: list[Any] = []

    def keep(request: Any, **_: Any) -> None:
        sent.append(request)
        raise _SentError

    client = connect(connections=1)
    client.meta.events.register("before-send.s3.HeadObject", keep)
    with pytest.raises(_SentError):
        S3Object("s3://bucket/train.rec", client=client)
    assert [request.url for request in sent] == [f"https://{host}/train.rec"]
    assert f"/{host.split('.')[2]}/s3/aws4_request" in sent[0].headers["Authorization"].decode()


class BreakingS3:
    """Client of S3 whose connections break after three bytes, and that records the ranges it is asked for."""

    def __init__(self, content: bytes, *, breaks: int = 0, errors: Sequence[ClientError] = ()) -> None:
        self._content = content
        self._errors = list(errors)
        self._breaks = breaks
        self.asked: list[str] = []

    def head_object(self, **_: str) -> Mapping[str, Any]:
        if self._errors:
            raise self._errors.pop()
        return {"ContentLength": len(self._content), "ETag": "1"}

    def get_object(self, *, Range: str, **_: str) -> Mapping[str, Any]:  # noqa: N803
        self.asked.append(Range)
        if self._errors:
            raise self._errors.pop()
        begin, end = map(int, Range.removeprefix("bytes=").split("-"))
        return {"Body": self._body(self._content[begin : end + 1])}

    def refuse(self, error: ClientError, *, times: int) -> None:
        self._errors = [error] * times

    def _body(self, content: bytes) -> io.BytesIO:
        if not self._breaks:
            return io.BytesIO(content)
        self._breaks -= 1
        return BrokenBody(content[:3])


def make_error(code: str, status: int) -> ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetObject")


class BrokenBody(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if content := super().read(size):
            return content
        raise ResponseStreamingError(error="Connection broken")


def test_broken_connection_is_replaced_by_one_that_reads_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_object, "FIRST_BACKOFF_S", 0)
    client = BreakingS3(bytes(range(20)), breaks=2)
    assert S3Object("s3://b/a.rec", client=client).read(4, 10) == bytes(range(4, 14))
    assert client.asked == ["bytes=4-13", "bytes=7-13", "bytes=10-13"]


@pytest.mark.parametrize(
    ("code", "status"), [("SlowDown", 503), ("503", 503), ("InternalError", 500), ("RequestTimeout", 400)]
)
def test_throttled_s3_requests_back_off_with_jitter(code: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    client = BreakingS3(bytes(range(20)), errors=[make_error(code, status)] * 7)
    remote = S3Object("s3://b/a.rec", client=client)
    assert [math.ceil(math.log2(pause)) for pause in pauses] == [0, 1, 2, 3, 4, 4, 4]
    assert len({pause / 2 ** math.ceil(math.log2(pause)) for pause in pauses}) > 1
    client.refuse(make_error(code, status), times=3)
    assert remote.read(4, 10) == bytes(range(4, 14))
    assert client.asked == ["bytes=4-13"] * 4


def test_refusal_ends_the_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("time.sleep")
    with pytest.raises(TrainerError, match=r"^cannot read s3://b/a.rec: .*AccessDenied"):
        S3Object("s3://b/a.rec", client=BreakingS3(b"", errors=[make_error("AccessDenied", 403)]))


def test_s3_that_stays_busy_ends_at_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_object, "READ_TIMEOUT_S", 0)
    with pytest.raises(TrainerError, match=r"^cannot read s3://b/a.rec: .*SlowDown"):
        S3Object("s3://b/a.rec", client=BreakingS3(b"", errors=[make_error("SlowDown", 503)]))


def test_connection_that_keeps_breaking_ends_at_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_object, "READ_TIMEOUT_S", 0)
    client = BreakingS3(bytes(20), breaks=9)
    with pytest.raises(TrainerError, match=r"^cannot read s3://b/a.rec: .*Connection broken"):
        S3Object("s3://b/a.rec", client=client).read(0, 20)
