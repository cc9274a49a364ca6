"""Check a healthy cluster, and one with a slow node, from the laptop: each check ends within a minute."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from local.faults import Faults
from tests.e2e.deployed_cluster import NODES, DeployedCluster
from tests.e2e.node_checks import limit_link, limited_links, run_check

SLOW_MBIT = 40
CHECK_S = 60
"""Longest duration of a check in seconds, as its page promises, beside the time in which the nodes load PyTorch."""
LOAD = "launch --force python -c 'import torch.distributed'"


@pytest.fixture
def limited(cluster: DeployedCluster) -> Iterator[DeployedCluster]:
    with limited_links(cluster.addresses):
        yield cluster


def check_in_time(cluster: DeployedCluster) -> tuple[int, dict[str, Any]]:
    begun = time.monotonic()
    cluster.user.ssh("deeplearning-master", LOAD)
    loaded = time.monotonic()
    report = run_check(cluster.user)
    assert time.monotonic() - loaded <= CHECK_S + (loaded - begun)
    return report


def test_check_names_the_slow_node_and_no_other(limited: DeployedCluster) -> None:
    code, healthy = check_in_time(limited)
    assert (code, healthy["findings"], healthy["missing_nodes"]) == (0, [], 0)
    assert {node["instance_id"] for node in healthy["nodes"]} == set(limited.addresses)
    assert all(len(node["pairs_gb_per_s"]) == NODES - 1 for node in healthy["nodes"])
    limit_link(Faults.current().node("worker2"), SLOW_MBIT)
    code, report = check_in_time(limited)
    assert (code, [(each["node"], each["what"]) for each in report["findings"]]) == (1, [("worker2", "slow")])
