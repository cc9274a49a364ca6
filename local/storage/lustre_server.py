"""Serve an FSx for Lustre file system: LNet's ports, behind the security groups that the VPC's router enforces.

A client sends the name under which it mounts the file system. Like Lustre's servers, this connects to the client too,
before it answers with the file system's ID.
"""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from local.network.vpc_network import in_namespace
from local.storage.lustre_mount_helper import FURTHER_PORTS, PORT
from local.storage.mount_targets import MountTarget

CLIENT_TIMEOUT_S: Final = 10.0
"""Limit in seconds for a connection to a client."""
IDLE_S: Final = 120.0
"""Limit in seconds for a client's request, which it sends after it has tried every port."""
MAX_NAME: Final = 64
"""Longest request in bytes."""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # all nodes of a large cluster may mount at the same time


class _Idle(socketserver.BaseRequestHandler):
    """Accepts connections to LNet's other ports, over which clients send no request."""


def start_lustre_server(target: MountTarget) -> Callable[[], None]:
    """Serve a file system in the background; return the function that stops it."""

    class Handler(socketserver.StreamRequestHandler):
        timeout = IDLE_S

        def handle(self) -> None:
            with contextlib.suppress(OSError):
                if name := self.rfile.readline(MAX_NAME).decode(errors="replace").strip():
                    time.sleep(target.slow_s)
                    self.wfile.write(f"{answer(target, name, client=self.client_address[0])}\n".encode())

    handlers = {PORT: Handler, **dict.fromkeys(FURTHER_PORTS, _Idle)}
    servers: list[_Server] = []

    def end() -> None:
        with ThreadPoolExecutor(len(servers)) as pool:  # each shutdown waits for its server's next look
            list(pool.map(_Server.shutdown, servers))
        for server in servers:
            server.server_close()

    try:
        for port, handler in handlers.items():
            servers.append(_start(target, port, handler))
    except OSError:
        if servers:
            end()
        raise
    return end


def _start(target: MountTarget, port: int, handler: type[socketserver.BaseRequestHandler]) -> _Server:
    server = in_namespace(target.vpc_id, lambda: _Server((target.address, port), handler))
    threading.Thread(target=server.serve_forever, name=f"storage-{target.file_system}-{port}", daemon=True).start()
    return server


def answer(target: MountTarget, name: str, *, client: str) -> str:
    """Return the answer to a client that mounts the file system under a name."""
    try:
        in_namespace(target.vpc_id, lambda: _connect(target, client))
    except OSError:
        return "no way to the client"
    return target.file_system if name == target.mount_name else "no such name"


def _connect(target: MountTarget, client: str) -> None:
    socket.create_connection((client, PORT), CLIENT_TIMEOUT_S, source_address=(target.address, 0)).close()
