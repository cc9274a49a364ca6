"""Test that three nodes share a directory, and that a late or lost mount target harms no job that does not use it.

This file must run first in its folder: `deployed` (conftest.py) leaves the cluster without mount targets until the
first test here restores them; in ``make soak`` after five minutes. A training that does not use the directory runs
meanwhile, and when a mount target is lost later.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from local.faults import Faults
from tests.e2e.support.deployed_cluster import NODES, DeployedCluster, aliases, stack_outputs
from tests.e2e.support.shared_directory import STATE, Training, check_that_ranks_share, training_elsewhere
from tests.waiting import wait_until

CHANGE_S = 180.0
STATUS_S = 400.0
"""Timeout for what all nodes report: a change of one node's record counts at most once a minute."""
MASTER = "deeplearning-master"
LATE_S = 300.0
LATE_TIMEOUT_S = 900
"""Limit for the case that waits so long, and for the deploy before it; also for the wait of STATUS_S."""
READER = "sudo systemd-run --quiet --unit reader --property RemainAfterExit=yes"


@pytest.fixture(scope="module")
def training(cluster: DeployedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    with training_elsewhere(cluster.user, MASTER, tmp_path_factory.mktemp("training") / "log") as training:
        yield training


def wait_for_states(cluster: DeployedCluster, expected: set[str]) -> None:
    deadline = time.monotonic() + CHANGE_S
    while (states := {cluster.on(alias, STATE) for alias in aliases()}) != expected:
        assert time.monotonic() < deadline, f"shared storage is {states} after {CHANGE_S:g} s, expected {expected}"
        time.sleep(0.5)


def status(cluster: DeployedCluster) -> dict[str, Any]:
    return dict(json.loads(cluster.user.output("dlcluster", "status", "--json")))


def node_states(cluster: DeployedCluster) -> list[str]:
    return [node["shared_storage"] for node in status(cluster)["nodes"]]


def reader_state(cluster: DeployedCluster) -> str:
    return cluster.on("deeplearning-worker2", "systemctl show --value --property SubState reader")


def alive(cluster: DeployedCluster) -> int:
    return cluster.user.ssh(MASTER, "launch echo alive").count("alive")


@pytest.mark.parametrize(
    "late_s", [0.0, pytest.param(LATE_S, marks=[pytest.mark.soak, pytest.mark.timeout(LATE_TIMEOUT_S)])]
)
def test_nodes_are_ready_without_storage_and_refuse_writes_to_its_directory(
    cluster: DeployedCluster, training: Training, late_s: float
) -> None:
    end = time.monotonic() + late_s
    training.wait_for_steps(3)
    while time.monotonic() < end:
        training.wait_for_steps()
    assert {cluster.on(alias, STATE) for alias in aliases()} <= {"not-known", "no-address"}
    printed = cluster.on(MASTER, "sudo touch /shared/by-root 2>&1; touch /shared/by-user 2>&1; ls /shared")
    assert printed.count("Read-only file system") == 2
    assert alive(cluster) == NODES
    Faults.current().end_storage_outage()
    wait_for_states(cluster, {"mounted"})
    assert cluster.on(MASTER, "ls /shared") == ""
    training.wait_for_steps()


def test_what_rank_0_writes_the_other_nodes_read(cluster: DeployedCluster) -> None:
    check_that_ranks_share(lambda command: cluster.user.ssh(MASTER, command), nodes=NODES)
    assert status(cluster)["shared_storage"] == f"efs:{stack_outputs()['SharedStorage']}"
    assert "nosuid,nodev" in cluster.on("deeplearning-worker2", "findmnt -n -o OPTIONS /shared | tail -1")


@pytest.mark.timeout(LATE_TIMEOUT_S)
def test_lost_mount_target_stops_only_what_uses_it(cluster: DeployedCluster, training: Training) -> None:
    """The mount hangs like NFS: a process that touches the directory waits in the kernel, and no timeout ends it."""
    Faults.current().storage_outage()
    try:
        wait_for_states(cluster, {"no-address"})
        cluster.on("deeplearning-worker2", f"{READER} sh -c 'cat /shared/told.txt > /run/read'")
        training.wait_for_steps()
        # The agent of each node goes on, and publishes what it sees.
        cluster.on("deeplearning-worker3", "sudo systemctl restart deeplearning-agent")
        wait_until(lambda: node_states(cluster) == ["no-address"] * NODES, "the status", timeout_s=STATUS_S)
        assert f"on 0 of {NODES} nodes" in cluster.user.output("dlcluster", "status")
        assert alive(cluster) == NODES
        training.wait_for_steps()
        assert reader_state(cluster) == "running"
    finally:
        Faults.current().end_storage_outage()
    wait_for_states(cluster, {"mounted"})
    wait_until(lambda: reader_state(cluster) == "exited", "the process that waited", timeout_s=CHANGE_S)
    assert cluster.on("deeplearning-worker2", "cat /run/read") == "from rank 0"
    assert cluster.on("deeplearning-worker3", "cat /shared/told.txt") == "from rank 0"
    training.check_end(nodes=NODES)


def test_killed_mount_service_reports_it_and_restarts(cluster: DeployedCluster) -> None:
    look = f'for i in $(seq 600); do state=$({STATE}); [ "$state" = stopped ] && break; sleep 0.05; done; echo "$state"'
    killed = cluster.on("deeplearning-worker2", f"sudo systemctl kill -s KILL deeplearning-shared-storage; {look}")
    assert killed == "stopped"
    wait_for_states(cluster, {"mounted"})
    assert cluster.on("deeplearning-worker2", "cat /shared/told.txt") == "from rank 0"
