"""A TCP port for the ranks to meet at: free, and claimed against every other launch until this process ends.

Free when asked is not enough: the ranks take it seconds later, when they have imported what they need. It is none that
the kernel gives away by itself, and its number is bound as the name of an abstract Unix socket (unix(7)), which one
process of a network namespace can have, and which is free again when that process is gone, however it ended. The port
itself stays unbound: a rank that does not say SO_REUSEADDR could not take it otherwise.
"""

import _socket as socket  # socket itself takes long to import
import os

from launcher.runner.fast_imports import contents

PORTS = 8192
PORTS_TRIED = 32
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


class Claim:
    """A port that no other launch on this machine gets, as long as this is open."""

    def __init__(self, port: int, held: socket.socket) -> None:
        self.port = port
        self._held = held

    def close(self) -> None:
        """Give the port up."""
        self._held.close()


def claim_port(port_range: str = RANGE) -> Claim:
    """A TCP port that nobody on this node uses or has claimed, and that no outgoing connection will be given."""
    ephemeral = int(contents(port_range).split()[0])
    lowest = max(1024, ephemeral - PORTS)
    # None where every port may be given to an outgoing connection, as some administrators have it.
    span = max(0, ephemeral - lowest)
    for tried in range(PORTS_TRIED):
        # At last any that the kernel gives.
        wanted = lowest + int.from_bytes(os.urandom(4), "big") % span if span and tried < PORTS_TRIED // 2 else 0
        if (claim := _claim(wanted)) is not None:
            return claim
    raise OSError("no TCP port is free")


def _claim(wanted: int) -> Claim | None:
    probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        probe.bind(("", wanted))
        port = int(probe.getsockname()[1])
        held.bind(f"\0deeplearning-port-{port}")
        return Claim(port, held)
    except OSError:
        held.close()
        return None
    finally:
        probe.close()
