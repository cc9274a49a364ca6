"""Claim a TCP port for the ranks' rendezvous, so that no other launch gets it until this process ends.

A free port is not enough: the ranks bind it seconds later, after their imports. This port lies outside the kernel's
range for outgoing connections, and its number is bound as the name of an abstract Unix socket (unix(7)), which only one
process of a network namespace can hold, and which the kernel releases when that process ends. The port itself stays
unbound: a rank without SO_REUSEADDR could not bind it otherwise.
"""

import _socket as socket  # importing socket is slow
import os

from launcher.runner.fast_imports import read_file

PORTS = 8192
PORTS_TRIED = 32
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


class Claim:
    """A port that no other launch on this machine gets while this object is open."""

    def __init__(self, port: int, lock: socket.socket) -> None:
        self.port = port
        self._lock = lock

    def close(self) -> None:
        """Release the port."""
        self._lock.close()


def claim_port(port_range: str = RANGE) -> Claim:
    """Claim a TCP port that is free on this node and outside the range of outgoing connections."""
    ephemeral = int(read_file(port_range).split()[0])
    lowest = max(1024, ephemeral - PORTS)
    # The range of outgoing connections may cover all ports.
    span = max(0, ephemeral - lowest)
    for attempt in range(PORTS_TRIED):
        # As a last resort, let the kernel choose a port.
        port = lowest + int.from_bytes(os.urandom(4), "big") % span if span and attempt < PORTS_TRIED // 2 else 0
        if (claim := _claim(port)) is not None:
            return claim
    raise OSError("no TCP port is free")


def _claim(port: int) -> Claim | None:
    probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        probe.bind(("", port))
        port = int(probe.getsockname()[1])
        lock.bind(f"\0deeplearning-port-{port}")
        return Claim(port, lock)
    except OSError:
        lock.close()
        return None
    finally:
        probe.close()
