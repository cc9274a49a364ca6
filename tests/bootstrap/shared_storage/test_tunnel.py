"""Test that the tunnel carries bytes through TLS to a server whose name it checks, and only for root."""

import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bootstrap.shared_storage import target as targets
from bootstrap.shared_storage import tunnel
from bootstrap.shared_storage.target import StorageTarget
from bootstrap.shared_storage.tunnel import Tunnel, probe
from local.storage.certificates import Authority

ANY_PORT = 65536
pytestmark = pytest.mark.allow_subprocess
"""openssl creates the certificates."""
MEBIBYTE = 1 << 20


class Echo:
    """A TLS echo server, which can drop each connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.served = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(plain,), daemon=True).start()

    def _echo(self, plain: socket.socket) -> None:
        try:
            with self._context.wrap_socket(plain, server_side=True) as connection:
                self.served += 1
                while data := connection.recv(MEBIBYTE):
                    connection.sendall(data)
        except OSError:
            return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[Echo]:
    echo = Echo(authority.server_context("localhost"))
    yield echo
    echo.close()


@pytest.fixture
def trusting(authority: Authority, server: Echo) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.certificate)


@pytest.fixture
def target(server: Echo, monkeypatch: pytest.MonkeyPatch) -> StorageTarget:
    monkeypatch.setattr(targets, "NFS_PORT", server.port)
    monkeypatch.setattr(tunnel, "CONNECT_S", 60.0)
    return StorageTarget(kind="efs", file_system="fs-01", host="localhost")


def start(target: StorageTarget, context: ssl.SSLContext, reserved_ports: int = ANY_PORT) -> int:
    return Tunnel(target, context=context, port=0, reserved_ports=reserved_ports, on_end=lambda: None).start()


def exchange(port: int, message: bytes) -> bytes:
    """Send a message; return the answer until the connection ends."""
    found = bytearray()
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for start in range(0, len(message), MEBIBYTE):
            piece = message[start : start + MEBIBYTE]
            connection.sendall(piece)
            wanted = start + len(piece)
            while len(found) < wanted and (data := connection.recv(MEBIBYTE)):
                found += data
    return bytes(found)


def test_bytes_arrive_complete_in_both_directions(target: StorageTarget, trusting: ssl.SSLContext) -> None:
    message = bytes(range(256)) * 40_000
    assert exchange(start(target, trusting), message) == message


def test_certificate_of_another_name_or_authority_is_refused(target: StorageTarget, trusting: ssl.SSLContext) -> None:
    assert exchange(start(replace(target, host="127.0.0.1"), trusting), b"write") == b""
    assert exchange(start(target, ssl.create_default_context()), b"write") == b""
    with pytest.raises(ssl.SSLError):
        probe(target, ssl.create_default_context())
    probe(target, trusting)


def test_only_root_may_use_the_tunnel(target: StorageTarget, trusting: ssl.SSLContext, server: Echo) -> None:
    assert exchange(start(target, trusting, reserved_ports=1024), b"write") == b""
    assert server.served == 0


def test_late_server_is_reached_by_the_next_connection(
    target: StorageTarget, trusting: ssl.SSLContext, server: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "NFS_PORT", 1)
    port = start(target, trusting)
    assert exchange(port, b"early") == b""
    monkeypatch.setattr(targets, "NFS_PORT", server.port)
    assert exchange(port, b"later") == b"later"


def test_tunnel_that_fails_ends_the_process(
    target: StorageTarget, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: queue.SimpleQueue[int] = queue.SimpleQueue()
    monkeypatch.setattr("os._exit", codes.put)
    monkeypatch.setattr("asyncio.start_server", None)
    Tunnel(target, context=trusting, port=0).start()
    assert codes.get(timeout=60) == 1
