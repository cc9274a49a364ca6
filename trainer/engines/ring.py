"""Adds up the vectors of all ranks' CPUs: a ring of TCP connections, driven by the thread that asks.

The ring all-reduce of Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of
workstations": each of n ranks sends 2(n-1)/n of the vector. gloo does the same, but has a thread of its own wait for
the network, which spins while another one sends (``Pair::handleEvents`` and its lock, in torch 2.13): on a rank's only
core that takes from LeNet as much time as all of its data's way. Here one thread sends, receives and sleeps.

Additions have one order, whatever comes first, and every sum is made once: all ranks get the same bits, every time.
"""

import fcntl
import hmac
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.ranks import Ranks

Vector = NDArray[Any]
Address = tuple[str, int, bytes]
"""Where a rank listens, and the key that its neighbour shows there."""
KEY_BYTES: Final = 16
KEEPALIVE_S: Final = 60
KEY_S: Final = 5.0
"""A neighbour shows its key at once; who does not is none."""
INTERFACE: Final = "GLOO_SOCKET_IFNAME"
"""Whoever chooses an interface for gloo means this traffic; the launcher always does."""
SIOCGIFADDR: Final = 0x8915
"""netdevice(7)."""


class Ring:
    """Where a rank stands in it. All ranks make the same calls in the same order."""

    def __init__(self, *, following: socket.socket, preceding: socket.socket, ranks: Ranks) -> None:
        for connection in (following, preceding):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # While rank 0 copies the end to S3 nothing is said for long, and firewalls forget silent connections.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        self._following = following
        self._preceding = preceding
        self._rank = ranks.rank
        self._size = ranks.world_size
        self._room = np.empty(0, np.uint8)

    def all_reduce(self, vector: Vector, *, timeout_s: float) -> None:
        """Replace a vector by the sum over all ranks.

        Raises ConnectionError when a neighbour ended, TimeoutError when it was silent for ``timeout_s``.
        """
        own, size, length = self._rank, self._size, len(vector)
        parts = [vector[length * part // size : length * (part + 1) // size] for part in range(size)]
        # Each part goes around once and grows into its sum,
        for step in range(size - 1):
            part = parts[(own - step - 1) % size]
            received = self._room_for(part)
            self._exchange(parts[(own - step) % size], received, timeout_s)
            part += received
        # and once more for all to have it.
        for step in range(size - 1):
            self._exchange(parts[(own - step + 1) % size], parts[(own - step) % size], timeout_s)

    def close(self) -> None:
        """Leave the others."""
        self._following.close()
        self._preceding.close()

    def _room_for(self, part: Vector) -> Vector:
        if self._room.nbytes < part.nbytes:
            self._room = np.empty(part.nbytes, np.uint8)
        return self._room[: part.nbytes].view(part.dtype)

    def _exchange(self, sent: Vector, received: Vector, timeout_s: float) -> None:
        """Send to the next rank while receiving from the one before: neither waits for the other to begin."""
        rest, room = _bytes_of(sent), _bytes_of(received)
        while rest or room:
            waits = select.poll()
            if rest:
                with suppress(BlockingIOError):
                    rest = rest[self._following.send(rest) :]
                if rest:
                    waits.register(self._following, select.POLLOUT)
            if room:
                with suppress(BlockingIOError):
                    count = self._preceding.recv_into(room)
                    if not count:
                        raise ConnectionResetError("connection closed by the rank before")
                    room = room[count:]
                if room:
                    waits.register(self._preceding, select.POLLIN)
            if (rest or room) and not waits.poll(timeout_s * 1000):
                raise TimeoutError("timed out")


def join_ring(
    *,
    ranks: Ranks,
    environment: Mapping[str, str],
    gather: Callable[[Address], list[Address]],
    timeout_s: float,
) -> Ring:
    """Connect to both neighbours; ``gather`` tells every rank's address to all.

    Raises OSError when one does not come.
    """
    deadline = time.monotonic() + timeout_s
    key = secrets.token_bytes(KEY_BYTES)
    with _listen() as listener:
        addresses = gather((own_host(ranks, environment), listener.getsockname()[1], key))
        host, port, their_key = addresses[(ranks.rank + 1) % ranks.world_size]
        following = socket.create_connection((host, port), timeout=timeout_s)
        following.sendall(their_key)
        preceding = _accept(listener, key, deadline)
    return Ring(following=following, preceding=preceding, ranks=ranks)


def own_host(ranks: Ranks, environment: Mapping[str, str]) -> str:
    """Where the others reach this rank."""
    master, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    if interface := environment.get(INTERFACE, "").split(",")[0]:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            found = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", interface.encode()))
            return socket.inet_ntoa(found[20:24])
    if ranks.rank == 0:
        # As the others found it: here its name may be a loopback address.
        return master
    family, kind, protocol, _, address = socket.getaddrinfo(master, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Sends nothing: it only looks for the way.
        probe.connect(address)
        host: str = probe.getsockname()[0]
        return host


def _listen() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _accept(listener: socket.socket, key: bytes, deadline: float) -> socket.socket:
    """Return the neighbour's connection; others, which do not know the key, are turned away."""
    while True:
        # 0 would be no timeout but no waiting.
        listener.settimeout(max(0.001, deadline - time.monotonic()))
        connection, _ = listener.accept()
        connection.settimeout(KEY_S)
        with suppress(OSError):
            shown = b""
            while len(shown) < KEY_BYTES and (piece := connection.recv(KEY_BYTES - len(shown))):
                shown += piece
            if hmac.compare_digest(shown, key):
                return connection
        connection.close()


def _bytes_of(vector: Vector) -> memoryview:
    return vector.view(np.uint8).data
