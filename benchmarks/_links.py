"""Slower links for the nodes of a local AWS: what a node sends and what it receives, each at so many Mbit/s."""

import subprocess
from collections.abc import Iterable

from local.faults.nodes import NodeHandle
from local.network import NODE_INTERFACE, ROUTER

BURST = "32kb"
LATENCY = "200ms"
"""What the queue holds at most, as time on the link: no connection loses packets by being bursty."""


def shape(nodes: Iterable[NodeHandle], *, mbit: int) -> None:
    """Give each node's link this rate, both ways (tc-tbf(8)). Raises CalledProcessError."""
    for node in nodes:
        for namespace, interface in (node.instance_id, NODE_INTERFACE), (ROUTER, node.link):
            shaped = ["root", "tbf", "rate", f"{mbit}mbit", "burst", BURST, "latency", LATENCY]
            subprocess.run(["tc", "-n", namespace, "qdisc", "replace", "dev", interface, *shaped], check=True)
