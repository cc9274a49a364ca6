"""Test the stand-in for the SSM agent against a metadata service whose tokens expire."""

import importlib.util
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[3] / "local/image/rootfs/usr/local/lib/ssm-agent.py"


@pytest.fixture
def tokens() -> set[str]:
    """Return the tokens that are valid."""
    return set()


@pytest.fixture
def agent(tokens: set[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    class Metadata(BaseHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

        def answer(self, code: int, text: str = "") -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_PUT(self) -> None:
            tokens.add(token := f"token-{len(tokens)}")
            self.answer(200, token)

        def do_GET(self) -> None:
            is_valid = self.headers["X-aws-ec2-metadata-token"] in tokens
            self.answer(200, self.path.rpartition("meta-data/")[2]) if is_valid else self.answer(401)

    specification = importlib.util.spec_from_file_location("ssm_agent", PROGRAM)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        monkeypatch.setattr(module, "METADATA", f"http://127.0.0.1:{server.server_port}/latest")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1")
        yield module.Agent()
        server.shutdown()


def test_agent_reads_metadata_after_its_token_has_expired(agent: Any, tokens: set[str]) -> None:
    assert agent.region == "placement/region"
    tokens.clear()
    assert agent.metadata("instance-id") == "instance-id"
