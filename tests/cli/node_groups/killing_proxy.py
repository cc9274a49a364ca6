"""Forward a process's calls to the local AWS, and kill the process as soon as AWS has executed a given one."""

import http.client
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

READS: Final = ("Describe", "Get", "List", "Query", "Scan", "BatchGet")
"""Beginnings of the actions that change nothing."""


@dataclass(kw_only=True)
class KillingProxy:
    """Counts the calls that change something; after the given one, kills the process, which gets no answer."""

    aws_url: str
    after_change: Callable[[], None]
    """Function that runs after each change, before AWS's answer is passed on."""
    url: str = ""
    kill_at: int = 0
    """Number of the change; 0 kills nothing."""
    changes: list[str] = field(default_factory=list)
    """The actions that changed something since the last start."""
    _pid: int = 0
    _is_started: threading.Event = field(default_factory=threading.Event)

    def expect_process(self, *, kill_at: int) -> None:
        """Hold back all calls until the next process is known."""
        self._is_started.clear()
        self.changes.clear()
        self.kill_at = kill_at

    def set_process(self, pid: int) -> None:
        self._pid = pid
        self._is_started.set()

    def forward(self, request: BaseHTTPRequestHandler) -> None:
        """Forward one call, and its answer unless the process is killed."""
        assert self._is_started.wait(timeout=60)
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        aws = http.client.HTTPConnection(urlsplit(self.aws_url).netloc, timeout=60)
        aws.request("POST", request.path, body, dict(request.headers.items()))
        answer = aws.getresponse()
        content = answer.read()
        aws.close()
        action = _action(request, body)
        if not action.startswith(READS):
            self.changes.append(action)
            if len(self.changes) == self.kill_at:
                os.kill(self._pid, signal.SIGKILL)
                return
            self.after_change()
        request.send_response(answer.status)
        for name in ("Content-Type", "x-amz-crc32"):
            if value := answer.getheader(name):
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


def _action(request: BaseHTTPRequestHandler, body: bytes) -> str:
    """Return the action of a call in the JSON or the query protocol."""
    target = request.headers.get("X-Amz-Target", "")
    return target.rpartition(".")[2] or parse_qs(body.decode())["Action"][0]


@contextmanager
def killing_proxy(aws_url: str, *, after_change: Callable[[], None]) -> Iterator[KillingProxy]:
    """Run the proxy on a free port."""
    proxy = KillingProxy(aws_url=aws_url, after_change=after_change)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            proxy.forward(self)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
