"""Limit the rate of the links of a local AWS's nodes, in both directions."""

import json
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from local.faults.node_handle import NodeHandle
from local.network.addresses import NODE_INTERFACE
from local.network.vpc_network import find_router, in_namespace

BURST_S = 0.002
"""Burst after a pause, as time on the link. On a machine with more work than cores, a shorter burst would leave the
link idle whenever it waits for a core, and idle time is lost (tc-tbf(8))."""
SMALLEST_BURST = 32 * 1024
"""Smallest burst in bytes: several packets of 9,001 bytes. The kernel splits larger packets between nodes to fit."""
LATENCY = "200ms"
"""Longest queue, as time on the link: long enough that bursty connections lose no packets."""
TRIAL = 128 * 2**20
"""Size in bytes of the transfer that measures a link's rate."""
UNCOUNTED = 16 * 2**20
"""Number of first bytes to skip, because they include the burst."""
TIMEOUT_S = 60.0


def burst(mbit: int) -> int:
    """Return the burst size in bytes for a link of this rate."""
    return max(SMALLEST_BURST, int(mbit * 1e6 / 8 * BURST_S))


def shape(nodes: Iterable[NodeHandle], *, mbit: int) -> None:
    """Limit each node's link to this rate in both directions (tc-tbf(8)). Raises CalledProcessError."""
    for namespace, interface in _ends(nodes):
        shaped = ["tbf", "rate", f"{mbit}mbit", "burst", f"{burst(mbit)}b", "latency", LATENCY]
        command = ["tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *shaped]
        subprocess.run(command, check=True)


def rates(one: NodeHandle, other: NodeHandle) -> tuple[float, float]:
    """Measure two simultaneous TCP connections between these nodes, one in each direction, in Mbit/s.

    Raises OSError.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        there, back = pool.submit(_rate, one, other), pool.submit(_rate, other, one)
        return there.result(), back.result()


def _rate(sender: NodeHandle, receiver: NodeHandle) -> float:
    address = _address(receiver)
    listener = in_namespace(receiver.instance_id, lambda: socket.create_server((address, 0)))
    with listener, ThreadPoolExecutor(max_workers=1) as pool:
        listener.settimeout(TIMEOUT_S)
        sending = pool.submit(_send, sender, listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(TIMEOUT_S)
            rate = _receive(connection)
        sending.result()
    return rate


def _send(sender: NodeHandle, address: tuple[str, int]) -> None:
    with in_namespace(sender.instance_id, lambda: socket.create_connection(address, timeout=TIMEOUT_S)) as connection:
        connection.sendall(bytes(TRIAL))


def _receive(connection: socket.socket) -> float:
    room = bytearray(2**20)
    received = counted = 0
    started = time.perf_counter()
    while size := connection.recv_into(room):
        received += size
        if received <= UNCOUNTED:
            started = time.perf_counter()
        else:
            counted += size
    return counted * 8 / 1e6 / (time.perf_counter() - started)


def _address(node: NodeHandle) -> str:
    command = ["ip", "-n", node.instance_id, "-json", "-4", "address", "show", "dev", NODE_INTERFACE]
    [interface] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    address: str = interface["addr_info"][0]["local"]
    return address


def _ends(nodes: Iterable[NodeHandle]) -> Iterator[tuple[str, str]]:
    """Yield both ends of each node's link, by namespace and interface: one sends, the other receives."""
    for node in nodes:
        yield node.instance_id, NODE_INTERFACE
        yield find_router(node.instance_id), node.link
