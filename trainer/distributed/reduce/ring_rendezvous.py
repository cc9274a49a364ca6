"""Connect each rank to its two neighbors in the ring, over which CPUs sum (trainer.distributed.reduce.reducers)."""

import fcntl
import hmac
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple

import torch.distributed

from trainer.distributed.reduce.reducers import Ring
from trainer.distributed.rendezvous import report_lost_ranks
from trainer.distributed.world import World

KEY_BYTES: Final = 16
KEY_TIMEOUT_S: Final = 5.0
"""Longest wait for a connection's key, in seconds; a neighbor sends it immediately."""
INTERFACE: Final = "GLOO_SOCKET_IFNAME"
"""Variable with gloo's network interface, used for the ring too; the launcher always sets it."""
SIOCGIFADDR: Final = 0x8915
"""ioctl request for an interface's address (netdevice(7))."""


class Address(NamedTuple):
    """Address on which a rank listens, and the key that its neighbor must send there."""

    host: str
    port: int
    key: bytes


def connect_ring(world: World, *, timeout: timedelta) -> Ring:
    """Connect this rank to its neighbors in the ring; the process group must exist."""

    def all_gather(address: Address) -> list[Address]:
        addresses: list[Address] = [address] * world.world_size
        torch.distributed.all_gather_object(addresses, address)
        return addresses

    with report_lost_ranks("connecting the ranks to each other", timeout=timeout):
        return join_ring(world=world, environment=os.environ, all_gather=all_gather, timeout_s=timeout.total_seconds())


def join_ring(
    *,
    world: World,
    environment: Mapping[str, str],
    all_gather: Callable[[Address], list[Address]],
    timeout_s: float,
) -> Ring:
    """Connect to both neighbors; ``all_gather`` exchanges the ranks' addresses. Raises OSError on a timeout."""
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
            reply = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", interface.encode()))
            return socket.inet_ntoa(reply[20:24])
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
    """Return the neighbor's connection; close connections that do not send the key."""
    while True:
        # Not 0, which would mean no waiting.
        listener.settimeout(max(0.001, deadline - time.monotonic()))
        connection, _ = listener.accept()
        connection.settimeout(KEY_TIMEOUT_S)
        with suppress(OSError):
            shown = b""
            while len(shown) < KEY_BYTES and (piece := connection.recv(KEY_BYTES - len(shown))):
                shown += piece
            if hmac.compare_digest(shown, key):
                return connection
        connection.close()
