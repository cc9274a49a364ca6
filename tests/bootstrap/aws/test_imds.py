"""Test what the agent reads from the instance metadata service, and its errors."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from bootstrap.aws.imds import Identity, read_identity
from bootstrap.cluster.termination_notice import InstanceMetadata, TerminationNotice, read_instance_metadata
from bootstrap.errors import MetadataError

TOKEN = "token-1"
ANSWERS = {"/latest/meta-data/instance-id": "i-1", "/latest/meta-data/local-ipv4": "10.0.0.5"}


class MetadataHandler(BaseHTTPRequestHandler):
    """An instance metadata service of version 2: it refuses requests without a token."""

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
        """Log nothing: the tests read only answers."""


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
    assert read_identity(host, timeout_s=60.0) == Identity(instance_id="i-1", address="10.0.0.5")


def test_missing_answer_is_named_in_the_error(service: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ANSWERS, "/latest/meta-data/local-ipv4")
    with pytest.raises(MetadataError, match="has no local-ipv4"):
        read_identity(f"127.0.0.1:{service.server_port}", timeout_s=60.0)


def test_error_names_the_address_where_nothing_listens() -> None:
    # Port 1 of the loopback address, on which nothing has listened for decades.
    with pytest.raises(MetadataError, match=r"metadata service at 127\.0\.0\.1:1 failed"):
        read_identity("127.0.0.1:1", timeout_s=1.0)


LIFECYCLE = "/latest/meta-data/autoscaling/target-lifecycle-state"
SPOT = "/latest/meta-data/spot/instance-action"
RISK = "/latest/meta-data/events/recommendations/rebalance"


@pytest.mark.parametrize(
    ("answers", "notice", "must_drain"),
    [
        ({}, TerminationNotice(), False),
        ({LIFECYCLE: "InService"}, TerminationNotice(), False),
        ({LIFECYCLE: "Standby"}, TerminationNotice(), False),
        ({LIFECYCLE: "Terminated"}, TerminationNotice(is_terminating=True), True),
        (
            {SPOT: '{"action": "terminate", "time": "2026-01-01T00:00:00Z"}'},
            TerminationNotice(is_interruption_pending=True),
            True,
        ),
        ({RISK: '{"noticeTime": "2026-01-01T00:00:00Z"}'}, TerminationNotice(is_rebalance_recommended=True), True),
    ],
)
def test_notice_is_parsed_from_metadata(
    service: ThreadingHTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[str, str],
    notice: TerminationNotice,
    must_drain: bool,
) -> None:
    for path, text in answers.items():
        monkeypatch.setitem(ANSWERS, path, text)
    metadata = read_instance_metadata(f"127.0.0.1:{service.server_port}", timeout_s=60.0)
    assert (metadata.notice, metadata.public_address) == (notice, None)
    assert notice.must_drain == must_drain


def test_public_address_is_read_from_metadata(service: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, "/latest/meta-data/public-ipv4", "203.0.113.2")
    metadata = read_instance_metadata(f"127.0.0.1:{service.server_port}", timeout_s=60.0)
    assert metadata == InstanceMetadata(public_address="203.0.113.2")


@pytest.mark.parametrize("status", [401, 500, 503])
def test_error_names_the_status_that_the_service_answered(
    service: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    def unwell(handler: MetadataHandler) -> None:
        handler._answer(status, "no")

    monkeypatch.setattr(MetadataHandler, "do_GET", unwell)
    with pytest.raises(MetadataError, match=f"answered {status} on"):
        read_instance_metadata(f"127.0.0.1:{service.server_port}", timeout_s=60.0)
