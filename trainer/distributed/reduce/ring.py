"""Sum arrays over all ranks' CPUs around a ring of TCP connections, driven by the calling thread.

The ring all-reduce of Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of
workstations": each of n ranks sends 2(n-1)/n of the array. gloo has the same algorithm, but its own thread waits for
the network and spins while another one sends (``Pair::handleEvents`` and its lock, in torch 2.13): on a rank's only
core this costs LeNet as much time as sending its data (docs/decisions/019; benchmark scaling_lenet). Here one thread
sends, receives and sleeps.

The order of the additions is fixed and every sum is computed once, so all ranks get the same bits in every run.
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
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer.distributed.world import World

Vector = NDArray[Any]
KEY_BYTES: Final = 16
KEEPALIVE_S: Final = 60
KEY_S: Final = 5.0
"""Longest wait for a connection's key, in seconds; a neighbour sends it immediately."""
INTERFACE: Final = "GLOO_SOCKET_IFNAME"
"""Variable with gloo's network interface, used for the ring too; the launcher always sets it."""
SIOCGIFADDR: Final = 0x8915
"""ioctl request for an interface's address (netdevice(7))."""


class Address(NamedTuple):
    """Address on which a rank listens, and the key that its neighbour must send there."""

    host: str
    port: int
    key: bytes


class Ring:
    """Connections of a rank to its two neighbours. All ranks must make the same calls in the same order."""

    def __init__(self, *, next_: socket.socket, previous: socket.socket, world: World) -> None:
        for connection in (next_, previous):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Firewalls drop silent connections, and these are silent while rank 0 uploads the final checkpoint.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        self._next = next_
        self._previous = previous
        self._rank = world.rank
        self._size = world.world_size
        self._buffer = np.empty(0, np.uint8)

    def all_reduce(self, vector: Vector, *, timeout_s: float) -> None:
        """Replace an array by its sum over all ranks.

        Raises ConnectionError when a neighbour has ended, TimeoutError when it was silent for ``timeout_s``.
        """
        own, size, length = self._rank, self._size, len(vector)
        parts = [vector[length * part // size : length * (part + 1) // size] for part in range(size)]
        # Reduce-scatter: each part goes around the ring and accumulates its sum.
        for step in range(size - 1):
            part = parts[(own - step - 1) % size]
            received = self._buffer_for(part)
            self._exchange(parts[(own - step) % size], received, timeout_s)
            part += received
        # All-gather: each sum goes around the ring to all ranks.
        for step in range(size - 1):
            self._exchange(parts[(own - step + 1) % size], parts[(own - step) % size], timeout_s)

    def close(self) -> None:
        """Close both connections."""
        self._next.close()
        self._previous.close()

    def _buffer_for(self, part: Vector) -> Vector:
        if self._buffer.nbytes < part.nbytes:
            self._buffer = np.empty(part.nbytes, np.uint8)
        return self._buffer[: part.nbytes].view(part.dtype)

    def _exchange(self, sent: Vector, received: Vector, timeout_s: float) -> None:
        """Send to the next rank while receiving from the previous one, so that no ranks wait for each other."""
        unsent, missing = _bytes_of(sent), _bytes_of(received)
        while unsent or missing:
            waits = select.poll()
            if unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[self._next.send(unsent) :]
                if unsent:
                    waits.register(self._next, select.POLLOUT)
            if missing:
                with suppress(BlockingIOError):
                    count = self._previous.recv_into(missing)
                    if not count:
                        raise ConnectionResetError("connection closed by the previous rank")
                    missing = missing[count:]
                if missing:
                    waits.register(self._previous, select.POLLIN)
            if (unsent or missing) and not waits.poll(timeout_s * 1000):
                raise TimeoutError("timed out")


def join_ring(
    *,
    world: World,
    environment: Mapping[str, str],
    all_gather: Callable[[Address], list[Address]],
    timeout_s: float,
) -> Ring:
    """Connect to both neighbours; ``all_gather`` exchanges the ranks' addresses. Raises OSError on a timeout."""
    deadline = time.monotonic() + timeout_s
    key = secrets.token_bytes(KEY_BYTES)
    with _listen() as listener:
        addresses = all_gather(Address(own_host(world, environment), listener.getsockname()[1], key))
        next_address = addresses[(world.rank + 1) % world.world_size]
        next_ = socket.create_connection((next_address.host, next_address.port), timeout=timeout_s)
        next_.sendall(next_address.key)
        previous = _accept(listener, key, deadline)
    return Ring(next_=next_, previous=previous, world=world)


def own_host(world: World, environment: Mapping[str, str]) -> str:
    """Return the address at which the other ranks reach this one."""
    master, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    if interface := environment.get(INTERFACE, "").split(",")[0]:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            found = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", interface.encode()))
            return socket.inet_ntoa(found[20:24])
    if world.rank == 0:
        # The other ranks resolved this name; here it may resolve to a loopback address.
        return master
    family, kind, protocol, _, address = socket.getaddrinfo(master, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # Connecting a datagram socket sends nothing; it selects the route, and with it the address.
        probe.connect(address)
        host: str = probe.getsockname()[0]
        return host


def _listen() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _accept(listener: socket.socket, key: bytes, deadline: float) -> socket.socket:
    """Return the neighbour's connection; close connections that do not send the key."""
    while True:
        # Not 0, which would mean no waiting.
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
