"""Tunnel NFS to EFS through TLS: accept on the loopback address, and connect each time to the file system's name.

EFS speaks TLS on NFS's own port. AWS's mount helper starts stunnel or its own proxy for this. Ubuntu's images contain
neither, and a network without internet could not download them. Python's standard library provides the same.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final

from bootstrap.shared_storage.target import TUNNEL_ADDRESS, TUNNEL_PORT, StorageTarget

log = logging.getLogger(__name__)

CONNECT_S: Final = 10.0
"""Seconds for a connection with its TLS handshake."""
DEAD_AFTER_S: Final = 30
"""Seconds without an acknowledgement after which a connection is closed; the NFS client then opens another."""
CHUNK: Final = 1 << 20
"""Largest piece to forward at a time, in bytes: NFS's largest request."""
RESERVED_PORTS: Final = 1024
"""Limit below which only root can use a port; the kernel's NFS client does."""


def tls_context() -> ssl.SSLContext:
    """Return the context that checks the certificate and the name against the system's authorities."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Tunnel:
    """Serves one file system."""

    def __init__(
        self,
        target: StorageTarget,
        *,
        context: ssl.SSLContext | None = None,
        port: int = TUNNEL_PORT,
        reserved_ports: int = RESERVED_PORTS,
        on_end: Callable[[], object] = lambda: os._exit(1),
    ) -> None:
        """``on_end`` runs if the tunnel fails: the process ends, and systemd starts another one with a new tunnel."""
        self._target = target
        self._context = context or tls_context()
        self._port = port
        self._reserved_ports = reserved_ports
        self._on_end = on_end

    def start(self) -> int:
        """Listen, serve in a thread until the process ends, and return the port. Raises OSError."""
        listener = socket.create_server((TUNNEL_ADDRESS, self._port))
        port = int(listener.getsockname()[1])
        threading.Thread(target=self._run, args=(listener,), name="tunnel", daemon=True).start()
        return port

    def _run(self, listener: socket.socket) -> None:
        try:
            with listener:
                asyncio.run(self._serve(listener))
        except BaseException:
            log.exception("the tunnel to %s failed", self._target.host)
        finally:
            self._on_end()

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._carry, sock=listener, limit=4 * CHUNK)
        await server.serve_forever()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side ends it."""
        try:
            if writer.get_extra_info("peername")[1] < self._reserved_ports:
                await self._join(reader, writer)
        except (OSError, asyncio.TimeoutError) as error:
            log.info("connection to %s ended: %s", self._target.host, error or type(error).__name__)
        finally:
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connecting = asyncio.open_connection(self._target.host, self._target.port, ssl=self._context, limit=4 * CHUNK)
        far_reader, far_writer = await asyncio.wait_for(connecting, CONNECT_S)
        set_up_connection(far_writer.get_extra_info("socket"))
        ways = [asyncio.create_task(_pump(reader, far_writer)), asyncio.create_task(_pump(far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()


def set_up_connection(connection: socket.socket) -> None:
    """Detect a peer that is gone, even while nothing is sent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 10),
        (socket.TCP_KEEPINTVL, 5),
        (socket.TCP_USER_TIMEOUT, DEAD_AFTER_S * 1000),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def probe(target: StorageTarget, context: ssl.SSLContext | None = None) -> None:
    """Connect to the file system once, as the tunnel does. Raises OSError (socket.gaierror, ssl.SSLError)."""
    with socket.create_connection((target.host, target.port), timeout=CONNECT_S) as connection:
        if target.is_efs:
            (context or tls_context()).wrap_socket(connection, server_hostname=target.host).close()
