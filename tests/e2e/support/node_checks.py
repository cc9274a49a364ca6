"""Limit the rate of nodes' links, and run ``dlcluster check`` on the nodes."""

import json
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from local.faults import Faults
from local.faults.node_handle import NodeHandle
from local.network.addresses import NODE_INTERFACE
from local.network.vpc_network import find_router
from local.run.user import User

LINKS_MBIT = 200
"""Rate of all links in Mbit/s; the network must be slower than the machine's processors, which other tests also use."""
CHECK_S = 300


def limit_link(node: NodeHandle, mbit: int | None) -> None:
    """Limit a node's link in both directions (tc-tbf(8)); None lifts the limit."""
    limit = ("tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "200ms")
    for namespace, interface in ((node.instance_id, NODE_INTERFACE), (find_router(node.instance_id), node.link)):
        location = ("dev", interface, "root")
        args = ("del", *location) if mbit is None else ("replace", *location, *limit)
        subprocess.run(["tc", "-n", namespace, "qdisc", *args], check=True)


@contextmanager
def limited_links(instance_ids: Collection[str]) -> Iterator[None]:
    """Limit the links of all these nodes to the same rate."""
    nodes = [Faults.current().node(instance_id) for instance_id in instance_ids]
    for node in nodes:
        limit_link(node, LINKS_MBIT)
    try:
        yield
    finally:
        for node in nodes:
            limit_link(node, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """Exit code of ``dlcluster check``, and its report."""

    exit_code: int
    report: dict[str, Any]

    @property
    def findings(self) -> list[tuple[str, str]]:
        """Return each finding's node, and what is wrong with it."""
        return [(finding["node"], finding["what"]) for finding in self.report["findings"]]


def run_check(user: User, *options: str) -> CheckResult:
    """Check the nodes; a finding is no error here."""
    done = subprocess.run(
        ["dlcluster", "check", "--json", *options], env=dict(user.environment),
        capture_output=True, text=True, check=False, timeout=CHECK_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return CheckResult(exit_code=done.returncode, report=json.loads(done.stdout))
