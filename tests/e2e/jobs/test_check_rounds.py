"""Check a cluster of GPU nodes in many rounds: each drawn fault must be found, and nothing in the rounds without one.

CHECKS=20 runs that many rounds with a slow node, with a node that lacks a GPU, and without a fault; node, rate and
number of GPUs are drawn from SEED and the round's number. ``make soak`` runs it: it deploys a cluster of its own. The
nodes' GPUs are simulated: each has a process, and one per node measures, with gloo.
"""

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import pytest

from local.faults import Faults
from local.faults.node_handle import NodeHandle
from local.faults.node_indexes import alias_of_index
from local.node.nvidia_smi import VISIBLE_COUNT_FILE
from local.run.user import User, deploy_arguments
from tests.e2e.support.deployed_cluster import NODES
from tests.e2e.support.node_checks import LINKS_MBIT, CheckResult, limit_link, run_check

pytestmark = pytest.mark.soak

ROUNDS = int(os.environ.get("CHECKS", "20"))
SEED = int(os.environ.get("SEED", "1"))
NAME = "gpus"
CONTEXT = ("-c", f"cluster_name={NAME}")
GPUS = 2
"""GPUs of each node: few, because each has a process, but enough to lose only some of them."""
SETTINGS = (*CONTEXT, "-c", "instance_type=g7.12xlarge", "-c", "efa=off")
SLOW_MBIT = (20, 100)
"""Lowest and highest rate of a slow node's link in Mbit/s: the check must name even a node at half of its rate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedCluster:
    """The cluster's user, and its nodes by short name."""

    user: User
    nodes: Mapping[str, NodeHandle]

    def check(self) -> CheckResult:
        """Check the cluster, which must have the nodes of the deploy: no agent may have asked for a replacement."""
        result = run_check(self.user, "--cluster", NAME)
        checked = {node["name"]: node["instance_id"] for node in result.report["nodes"]}
        assert checked == {name: node.instance_id for name, node in self.nodes.items()}
        return result


@pytest.fixture(scope="module")
def checked(user: User) -> Iterator[CheckedCluster]:
    """Deploy a cluster of GPU nodes, with all links limited."""
    try:
        user.cdk(*deploy_arguments(nodes=NODES), *SETTINGS)
        members = Faults.current().instances(NAME)
        nodes = {alias_of_index(index): Faults.current().node(members[index]) for index in sorted(members)}
        assert len(nodes) == NODES
        for node in nodes.values():
            limit_link(node, LINKS_MBIT)
        yield CheckedCluster(user=user, nodes=nodes)
    finally:
        user.cdk("destroy", "--force", *CONTEXT)


@contextmanager
def slowed(node: NodeHandle, mbit: int) -> Iterator[None]:
    limit_link(node, mbit)
    try:
        yield
    finally:
        limit_link(node, LINKS_MBIT)


@contextmanager
def lacking_gpus(node: NodeHandle, left: int) -> Iterator[None]:
    """Leave a node only so many GPUs. End the block within two minutes, before its agent asks for a replacement."""
    count = node.path(VISIBLE_COUNT_FILE)
    count.parent.mkdir(parents=True, exist_ok=True)
    count.write_text(str(left))
    try:
        yield
    finally:
        count.unlink()


# The upper decorator varies first: other rounds follow each with lost GPUs, so that no agent counts them for long.
@pytest.mark.parametrize("kind", ["slow", "gpus", "healthy"])
@pytest.mark.parametrize("number", range(ROUNDS))
def test_check_names_the_faulty_node_and_no_other(checked: CheckedCluster, number: int, kind: str) -> None:
    chance = random.Random(f"{SEED} {kind} {number}")
    name = chance.choice([*checked.nodes])
    node, mbit, left = checked.nodes[name], chance.randint(*SLOW_MBIT), chance.randrange(GPUS)
    faults: dict[str, AbstractContextManager[None]] = {
        "slow": slowed(node, mbit),
        "gpus": lacking_gpus(node, left),
        "healthy": nullcontext(),
    }
    with faults[kind]:
        result = checked.check()
    expected = [] if kind == "healthy" else [(name, kind)]
    assert (result.exit_code, result.findings) == (int(bool(expected)), expected), (name, mbit, left, result.report)
    if kind == "gpus":
        assert [(finding["found"], finding["expected"]) for finding in result.report["findings"]] == [(left, GPUS)]
