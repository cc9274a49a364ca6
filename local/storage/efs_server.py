"""Serve a mount target of EFS: TLS on NFS's port, behind the security groups that the VPC's router enforces."""

import contextlib
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final

from local.network.vpc_network import in_namespace
from local.storage.mount_targets import MountTarget
from local.storage.rpc import read_record, reply

PORT: Final = 2049
IDLE_S: Final = 60.0
_TLS_HANDSHAKE: Final = b"\x16"
"""First byte of a connection that begins with TLS (RFC 8446, "ContentType")."""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def start_efs_server(target: MountTarget, context: ssl.SSLContext) -> Callable[[], None]:
    """Serve a mount target in the background; return the function that stops it and cuts its connections."""
    connections: set[socket.socket] = set()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError), self._connection() as connection:
                connections.add(connection)
                is_admitted = target.admits_tls if isinstance(connection, ssl.SSLSocket) else target.admits_plaintext
                try:
                    while (answer := reply(read_record(connection.recv), target.file_system)) and is_admitted:
                        time.sleep(target.slow_s)
                        connection.sendall(answer)
                finally:
                    connections.discard(connection)

        def _connection(self) -> socket.socket:
            """Return the connection, in TLS if the peer starts it. Raises OSError."""
            plain: socket.socket = self.request
            plain.settimeout(IDLE_S)
            if plain.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
                return context.wrap_socket(plain, server_side=True)
            return plain

    def end() -> None:
        server.shutdown()
        server.server_close()
        for connection in tuple(connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    server = in_namespace(target.vpc_id, lambda: _Server((target.address, PORT), Handler))
    threading.Thread(target=server.serve_forever, name=f"storage-{target.file_system}", daemon=True).start()
    return end
