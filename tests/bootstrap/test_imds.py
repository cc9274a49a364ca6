from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from bootstrap.errors import MetadataError
from bootstrap.imds import Identity, read_identity

TOKEN = "token-1"
ANSWERS = {"/latest/meta-data/instance-id": "i-1", "/latest/meta-data/local-ipv4": "10.0.0.5"}


class MetadataHandler(BaseHTTPRequestHandler):
    """The instance metadata service, version 2 only: nothing without a token."""

    def do_PUT(self) -> None:
        wanted = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200 if wanted else 400, TOKEN)

    def do_GET(self) -> None:
        if self.headers["X-aws-ec2-metadata-token"] != TOKEN:
            self._answer(401, "")
        else:
            self._answer(200 if self.path in ANSWERS else 404, ANSWERS.get(self.path, "no"))

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing: the tests read answers, not logs."""


@pytest.fixture
def service() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), MetadataHandler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_identity_is_read_with_a_token(service: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    host = f"127.0.0.1:{service.server_port}"
    assert read_identity(host) == Identity(instance_id="i-1", address="10.0.0.5")


def test_fails_when_an_answer_is_missing(service: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ANSWERS, "/latest/meta-data/local-ipv4")
    with pytest.raises(MetadataError, match="answered 404 on /latest/meta-data/local-ipv4"):
        read_identity(f"127.0.0.1:{service.server_port}")


def test_fails_when_nobody_listens() -> None:
    # Port 1 of the loopback address: nothing has listened there for decades.
    with pytest.raises(MetadataError, match=r"metadata service at 127\.0\.0\.1:1 failed"):
        read_identity("127.0.0.1:1", timeout_s=1.0)
