"""Test that three nodes share a directory, and that a late or lost mount target harms no job that does not use it.

This file is the first in its part: the cluster was deployed without a mount target.
"""

import json
import time
from typing import Any

from local.faults import Faults
from tests.e2e.conftest import NODES, Cluster, aliases, stack_outputs
from tests.e2e.shared_directory import STATE, check_that_ranks_share

CHANGE_S = 90.0
MASTER = "deeplearning-master"


def await_states(cluster: Cluster, expected: set[str]) -> None:
    deadline = time.monotonic() + CHANGE_S
    while (found := {cluster.on(alias, STATE) for alias in aliases()}) != expected:
        assert time.monotonic() < deadline, f"shared storage is {found} after {CHANGE_S:g} s, expected {expected}"
        time.sleep(0.5)


def status(cluster: Cluster) -> dict[str, Any]:
    return dict(json.loads(cluster.user.output("dlcluster", "status", "--json")))


def alive(cluster: Cluster) -> int:
    return cluster.user.ssh(MASTER, "launch echo alive").count("alive")


def test_nodes_are_ready_without_storage_and_refuse_writes_to_its_directory(cluster: Cluster) -> None:
    assert {cluster.on(alias, STATE) for alias in aliases()} <= {"not-known", "no-address"}
    printed = cluster.on(MASTER, "sudo touch /shared/by-root 2>&1; touch /shared/by-user 2>&1; ls /shared")
    assert printed.count("Read-only file system") == 2
    assert alive(cluster) == NODES
    Faults.current().end_storage_outage()
    await_states(cluster, {"mounted"})
    assert cluster.on(MASTER, "ls /shared") == ""


def test_what_rank_0_writes_the_other_nodes_read(cluster: Cluster) -> None:
    check_that_ranks_share(lambda command: cluster.user.ssh(MASTER, command), nodes=NODES)
    assert status(cluster)["shared_storage"] == f"efs:{stack_outputs()['SharedStorage']}"
    assert "nosuid,nodev" in cluster.on("deeplearning-worker2", "findmnt -n -o OPTIONS /shared | tail -1")


def test_lost_mount_target_does_not_affect_other_jobs(cluster: Cluster) -> None:
    Faults.current().storage_outage()
    try:
        assert alive(cluster) == NODES
        await_states(cluster, {"no-address"})
    finally:
        Faults.current().end_storage_outage()
    await_states(cluster, {"mounted"})
    assert cluster.on("deeplearning-worker3", "cat /shared/told.txt") == "from rank 0"


def test_a_killed_mount_service_reports_it_and_restarts(cluster: Cluster) -> None:
    look = f'for i in $(seq 600); do state=$({STATE}); [ "$state" = stopped ] && break; sleep 0.05; done; echo "$state"'
    killed = cluster.on("deeplearning-worker2", f"sudo systemctl kill -s KILL deeplearning-shared; {look}")
    assert killed == "stopped"
    await_states(cluster, {"mounted"})
    assert cluster.on("deeplearning-worker2", "cat /shared/told.txt") == "from rank 0"
