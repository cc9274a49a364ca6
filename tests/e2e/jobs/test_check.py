"""Check a healthy cluster, and one with a slow node, from the laptop."""

from collections.abc import Iterator

import pytest

from local.faults import Faults
from tests.e2e.support.deployed_cluster import NODES, DeployedCluster
from tests.e2e.support.node_checks import limit_link, limited_links, run_check

SLOW_MBIT = 40


@pytest.fixture
def limited(cluster: DeployedCluster) -> Iterator[DeployedCluster]:
    with limited_links(cluster.addresses):
        yield cluster


def test_check_names_the_slow_node_and_no_other(limited: DeployedCluster) -> None:
    healthy = run_check(limited.user)
    assert (healthy.exit_code, healthy.findings, healthy.report["missing_nodes"]) == (0, [], 0)
    assert {node["instance_id"] for node in healthy.report["nodes"]} == set(limited.addresses)
    assert all(len(node["pairs_gb_per_s"]) == NODES - 1 for node in healthy.report["nodes"])
    limit_link(Faults.current().node("worker2"), SLOW_MBIT)
    slow = run_check(limited.user)
    assert (slow.exit_code, slow.findings) == (1, [("worker2", "slow")])
