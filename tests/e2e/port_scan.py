"""Scan which ports of a node accept a connection, from internet addresses and from other nodes."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

from local.network.addresses import INTERNET, USER_ADDRESS
from local.network.vpc_network import in_namespace

OUTSIDER = "198.51.100.77"
"""Internet address that is not in ssh_location."""
SSH = 22
PORTS = (80, 111, 443, 2049, 6006, 8080, 8888, 29500, 61234, 65535)
"""Ports of programs that users start on such nodes, of NFS and its port mapper, of training, and high ones."""
EVERY_PORT = (SSH, *PORTS)
CONNECT_TIMEOUT_S = 2.0
FIREWALL_S = 60.0
"""Seconds until a changed rule takes effect."""

Address = tuple[str, int]


@contextmanager
def listening(instance_id: str) -> Iterator[None]:
    """Accept connections on a node, on every address and tried port except sshd's."""
    with ExitStack() as sockets:
        for listener in in_namespace(instance_id, lambda: [socket.create_server(("0.0.0.0", port)) for port in PORTS]):
            sockets.enter_context(closing(listener))
        yield


@contextmanager
def outside_machine() -> Iterator[str]:
    """Add a second machine to the internet: one more address of this one, with a route from the internet."""
    own = ["ip", "addr", "add", f"{OUTSIDER}/32", "dev", "lo"]
    route = ["ip", "-n", INTERNET, "route", "add", f"{OUTSIDER}/32", "via", USER_ADDRESS]
    for command in (own, route):
        subprocess.run(command, check=True)
    yield OUTSIDER
    for command in (route, own):
        subprocess.run([word if word != "add" else "del" for word in command], check=True)


def connects(source: str, target: Address) -> bool:
    try:
        with socket.create_connection(target, timeout=CONNECT_TIMEOUT_S, source_address=(source, 0)):
            return True
    except OSError:
        return False


def open_ports(source: str, address: str) -> set[int]:
    """Return the ports of an address that accept a connection from a source."""
    with ThreadPoolExecutor(max_workers=len(EVERY_PORT)) as pool:
        answers = pool.map(lambda port: connects(source, (address, port)), EVERY_PORT)
        return {port for port, answered in zip(EVERY_PORT, answers, strict=True) if answered}


def open_ports_from_node(instance_id: str, source: str, address: str) -> set[int]:
    """Return the same, scanned by a node."""
    return in_namespace(instance_id, lambda: open_ports(source, address))


def await_ports(scan: Callable[[], set[int]], wanted: set[int]) -> None:
    deadline = time.monotonic() + FIREWALL_S
    while (found := scan()) != wanted:
        assert time.monotonic() < deadline, f"waited {FIREWALL_S:.0f} s for the ports {wanted}, open are {found}"
        time.sleep(0.2)
