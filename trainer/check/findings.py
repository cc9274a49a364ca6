"""Decide which nodes to report: those that lack devices, and those that are slower than the others.

A node is slow if even its fastest pair is below SLOW_BELOW of the nodes' median, in two measurements. So neither a slow
partner nor a passing disturbance makes a node slow, and nothing depends on how fast a type should be. The median is
reliable while less than half of the nodes are slow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from trainer.check.node_devices import NodeDevices
from trainer.check.rounds import Pair

SLOW_BELOW: Final = 2 / 3
"""Fraction of the median below which a node is slow. A node that has lost half of its network is at 1/2, a good one at
1; both have room for the variation of a measurement."""
DEVICES: Final = {"gpus": "GPUs", "efa": "EFA devices"}
"""Names of the kinds of devices in a sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A node to report, and the reason."""

    node: str
    what: str
    """``gpus``, ``efa`` or ``slow``."""
    found: float
    """Number of devices, or GB/s with the node's fastest partner."""
    expected: float
    """Number of devices that it should have, or the nodes' median in GB/s."""

    @property
    def sentence(self) -> str:
        """Return the finding as one line."""
        if self.what in DEVICES:
            return f"{self.node} has {self.found:g} {DEVICES[self.what]}, it should have {self.expected:g}"
        return (
            f"{self.node} is slow: {self.found:.3g} GB/s with its fastest partner, below {SLOW_BELOW:.0%} of the "
            f"nodes' median of {self.expected:.3g} GB/s"
        )


def fastest_bandwidths(nodes: int, pairs: Mapping[Pair, float]) -> list[float]:
    """Return the bandwidth of each node's fastest pair, in GB/s."""
    return [max(bandwidth for pair, bandwidth in pairs.items() if node in pair) for node in range(nodes)]


def slow_nodes(nodes: int, pairs: Mapping[Pair, float]) -> list[int]:
    """Return the positions of the slow nodes. With only two nodes, neither can be compared with another partner."""
    if not pairs:
        return []
    bandwidths = fastest_bandwidths(nodes, pairs)
    return [node for node, bandwidth in enumerate(bandwidths) if bandwidth < SLOW_BELOW * median(bandwidths)]


def measure_confirmed(measure: Callable[[], Mapping[Pair, float]], nodes: int) -> Mapping[Pair, float]:
    """Measure the pairs; if a node is slow, measure them again and take the larger bandwidth of each."""
    pairs = measure()
    if not slow_nodes(nodes, pairs):
        return pairs
    again = measure()
    return {pair: max(bandwidth, again[pair]) for pair, bandwidth in pairs.items()}


def list_findings(devices: Sequence[NodeDevices], pairs: Mapping[Pair, float]) -> list[Finding]:
    """Return all findings: first the nodes that lack devices, then the slow ones."""
    counts = [
        (node.name, what, count, expected)
        for node in devices
        for what, count, expected in (("gpus", node.gpus, node.expected_gpus), ("efa", node.efa, node.expected_efa))
        if expected is not None and count < expected
    ]
    bandwidths = fastest_bandwidths(len(devices), pairs) if pairs else []
    slow = [
        (devices[node].name, "slow", bandwidths[node], median(bandwidths)) for node in slow_nodes(len(devices), pairs)
    ]
    return [Finding(node=node, what=what, found=n, expected=expected) for node, what, n, expected in [*counts, *slow]]
