"""Tell callers their address on the internet, like AWS's checkip service."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from local.network.addresses import INTERNET, PROVIDER_ADDRESS
from local.network.vpc_network import in_namespace

URL: Final = f"http://{PROVIDER_ADDRESS}/"
"""URL beyond the user's own link; at AWS's API itself, the user's packets would not have left the machine."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 10

    def log_message(self, *_arguments: object) -> None:
        """Log nothing, because the console of the local AWS is for other messages."""

    def do_GET(self) -> None:
        body = f"{self.client_address[0]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(address: tuple[str, int]) -> ThreadingHTTPServer:
    """Serve at an address of this network namespace, in the background."""
    server = ThreadingHTTPServer(address, _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="check-ip", daemon=True).start()
    return server


def start() -> None:
    """Serve on the internet while this process runs."""
    in_namespace(INTERNET, lambda: serve((PROVIDER_ADDRESS, 80)))
