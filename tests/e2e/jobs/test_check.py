"""Check a healthy cluster, and one with a slow node, from the laptop."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from local.faults import Faults
from local.network.addresses import NODE_INTERFACE
from local.network.vpc_network import router_of
from tests.e2e.conftest import NODES, Cluster

LINKS = "200mbit"
"""Rate of all links; the network must be slower than the machine's processors, which other tests also use."""
SLOW = "40mbit"


def shape(cluster: Cluster, name: str, rate: str | None) -> None:
    """Limit a node's link in both directions (tc-tbf(8)); None lifts the limit."""
    node = Faults.current().node(name)
    for namespace, interface in ((node.instance_id, NODE_INTERFACE), (router_of(node.instance_id), node.link)):
        words = ["replace", "dev", interface, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms"]
        action = words if rate else ["del", "dev", interface, "root"]
        subprocess.run(["tc", "-n", namespace, "qdisc", *map(str, action)], check=True)


@pytest.fixture
def limited(cluster: Cluster) -> Iterator[Cluster]:
    names = ["master", *(f"worker{index}" for index in range(2, NODES + 1))]
    for name in names:
        shape(cluster, name, LINKS)
    yield cluster
    for name in names:
        shape(cluster, name, None)


def check(cluster: Cluster) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        ["dlcluster", "check", "--json"], env=dict(cluster.user.environment),
        capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_check_names_the_slow_node_and_no_other(limited: Cluster) -> None:
    code, healthy = check(limited)
    assert (code, healthy["findings"], healthy["missing_nodes"]) == (0, [], 0)
    assert {node["instance_id"] for node in healthy["nodes"]} == set(limited.addresses)
    assert all(len(node["pairs_gb_per_s"]) == NODES - 1 for node in healthy["nodes"])
    shape(limited, "worker2", SLOW)
    code, found = check(limited)
    assert (code, [(each["node"], each["what"]) for each in found["findings"]]) == (1, [("worker2", "slow")])
