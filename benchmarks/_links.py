"""Slower links for the nodes of a local AWS: what a node sends and what it receives, each at so many Mbit/s."""

import json
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from local.faults.nodes import NodeHandle
from local.network.addresses import NODE_INTERFACE
from local.network.vpc_network import in_namespace, router_of

BURST_S = 0.002
"""What may go at once after a pause, as time on the link. Less, and on a machine with more to do than cores the link
would stand still whenever it has to wait for one: time that is not used is lost (tc-tbf(8))."""
SMALLEST_BURST = 32 * 1024
"""Some packets (the nodes' have 9,001 bytes). A larger one, as the kernel has them between nodes, is cut into such."""
LATENCY = "200ms"
"""What the queue holds at most, as time on the link: no connection loses packets by being bursty."""
TRIAL = 128 * 2**20
"""Bytes of the transfer that tells a link's rate."""
UNCOUNTED = 16 * 2**20
"""Of these, at the beginning: the burst is among them."""
TIMEOUT_S = 60.0


def burst(mbit: int) -> int:
    """Bytes that a link of this rate may carry at once after a pause."""
    return max(SMALLEST_BURST, int(mbit * 1e6 / 8 * BURST_S))


def shape(nodes: Iterable[NodeHandle], *, mbit: int) -> None:
    """Give each node's link this rate, both ways (tc-tbf(8)). Raises CalledProcessError."""
    for namespace, interface in _ends(nodes):
        shaped = ["tbf", "rate", f"{mbit}mbit", "burst", f"{burst(mbit)}b", "latency", LATENCY]
        command = ["tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *shaped]
        subprocess.run(command, check=True)


def rates(one: NodeHandle, other: NodeHandle) -> tuple[float, float]:
    """Measure what two TCP connections between these nodes carry at the same time, one each way, in Mbit/s.

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
    """Each node's link at both ends, by namespace and interface: one is what it sends, the other what it receives."""
    for node in nodes:
        yield node.instance_id, NODE_INTERFACE
        yield router_of(node.instance_id), node.link
