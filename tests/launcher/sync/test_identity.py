"""Test which peers may connect to a node that waits for files."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from launcher.errors import LaunchError
from launcher.runner.sync import relay
from launcher.runner.sync.byte_queue import NeighborLostError
from launcher.runner.sync.relay import accept, connect
from launcher.sync.certificate import new_sync_key


@pytest.fixture(scope="module")
def identity() -> str:
    return new_sync_key()


@pytest.fixture(autouse=True)
def _time_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for timeout in ("CONNECT_TIMEOUT_S", "HANDSHAKE_TIMEOUT_S"):
        monkeypatch.setattr(relay, timeout, 60.0)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@contextmanager
def in_background(act: Callable[[], None]) -> Iterator[None]:
    """Run `act` in another thread, which has ended when the block ends."""
    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join(120)
        assert not thread.is_alive()


def dial(listener: socket.socket, identity: str) -> ssl.SSLSocket:
    return connect("127.0.0.1", listener.getsockname()[1], name="worker2", identity=identity)


def test_nodes_of_a_sync_authenticate_and_encrypt(identity: str, listener: socket.socket) -> None:
    got: list[bytes] = []

    def serve() -> None:
        with accept(listener, identity) as connection:
            assert connection.version() == "TLSv1.3"
            got.append(connection.recv(100))

    with in_background(serve), dial(listener, identity) as connection:
        connection.sendall(b"file")
    assert got == [b"file"]


def test_peers_without_the_key_are_rejected_without_delay(identity: str, listener: socket.socket) -> None:
    """Connect without TLS, with another sync's key, with no key, and then with the right one."""
    got: list[bytes] = []

    def serve() -> None:
        with accept(listener, identity) as connection:
            got.append(connection.recv(100))

    keyless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    keyless.check_hostname, keyless.verify_mode = False, ssl.CERT_NONE
    with in_background(serve):
        with socket.create_connection(listener.getsockname()) as plain:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises(NeighborLostError, match=r"worker2 at 127\.0\.0\.1:\d+: "):
            dial(listener, new_sync_key())
        with socket.create_connection(listener.getsockname()) as plain, keyless.wrap_socket(plain) as other:
            other.settimeout(60)
            with pytest.raises(ssl.SSLError):
                other.recv(1)
        with dial(listener, identity) as connection:
            connection.sendall(b"file")
    assert got == [b"file"]


def test_node_sends_nothing_to_a_peer_without_the_key(identity: str, listener: socket.socket) -> None:
    other, got = new_sync_key(), list[bytes]()

    def serve() -> None:
        with accept(listener, other) as connection:
            got.append(connection.recv(100))

    with in_background(serve):
        with pytest.raises(NeighborLostError, match="certificate verify failed"):
            dial(listener, identity)
        # The node still waits for a peer with its key.
        with dial(listener, other) as connection:
            connection.sendall(b"file")
    assert got == [b"file"]


def test_previous_node_that_does_not_connect_counts_as_lost(
    identity: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "CONNECT_TIMEOUT_S", 0.1)
    with pytest.raises(NeighborLostError, match=r"did not connect within 0\.1 s"):
        accept(listener, identity)


def test_unreachable_next_node_is_reported_with_its_address(identity: str) -> None:
    with socket.socket() as unlistened:
        unlistened.bind(("127.0.0.1", 0))
        port = unlistened.getsockname()[1]
        with pytest.raises(LaunchError, match=f"cannot reach worker2 at 127.0.0.1:{port}: Connection refused"):
            connect("127.0.0.1", port, name="worker2", identity=identity)


def test_missing_openssl_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such/place")
    with pytest.raises(LaunchError, match="cannot run openssl, which creates the TLS key for the sync: No such file"):
        new_sync_key()
