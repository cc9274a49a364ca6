"""Test that three nodes share a directory, and that a late or lost mount target harms no job that does not use it.

This file is the first in its part: the cluster was deployed without a mount target.
"""

import json
import time
from typing import Any

from local.faults import Faults
from tests.e2e.conftest import NODES, Cluster, aliases, stack_outputs

CHANGE_S = 90.0
MASTER = "deeplearning-master"
STATE = "cat /run/deeplearning/shared-state"
SCRIPT = """
import os, time
path = os.path.join(os.environ["EFS_MOUNT"], "told.txt")
assert os.environ["DEEPLEARNING_SHARED"] == os.environ["EFS_MOUNT"] == "/shared"
if os.environ["RANK"] == "0":
    with open(path + ".new", "w") as file:
        file.write("from rank 0")
    os.rename(path + ".new", path)
deadline = time.monotonic() + 30
while not os.path.exists(path):
    assert time.monotonic() < deadline, "waited 30 s for rank 0 to write"
    time.sleep(0.1)
print("rank", os.environ["RANK"], "reads", open(path).read())
"""


def await_states(cluster: Cluster, expected: set[str]) -> None:
    deadline = time.monotonic() + CHANGE_S
    while (found := {cluster.on(alias, STATE) for alias in aliases()}) != expected:
        assert time.monotonic() < deadline, f"shared storage is {found} after {CHANGE_S:g} s, expected {expected}"
        time.sleep(0.5)


def status(cluster: Cluster) -> dict[str, Any]:
    return dict(json.loads(cluster.user.output("dlcluster", "status", "--json")))


def alive(cluster: Cluster) -> int:
    return cluster.user.ssh(MASTER, "launch echo alive").count("alive")


def test_the_nodes_are_ready_without_it_and_nothing_lands_below_the_mount_point(cluster: Cluster) -> None:
    assert {cluster.on(alias, STATE) for alias in aliases()} <= {"not-known", "no-address"}
    printed = cluster.on(MASTER, "sudo touch /shared/by-root 2>&1; touch /shared/by-user 2>&1; ls /shared")
    assert printed.count("Read-only file system") == 2
    assert alive(cluster) == NODES
    Faults.current().storage_back()
    await_states(cluster, {"mounted"})
    assert cluster.on(MASTER, "ls /shared") == ""


def test_what_rank_0_writes_the_other_nodes_read(cluster: Cluster) -> None:
    cluster.user.ssh(MASTER, f"cat > /shared/writes.py <<'EOF'\n{SCRIPT}EOF")
    printed = cluster.user.ssh(MASTER, "launch python3 /shared/writes.py")
    assert sorted(line.split("rank ", 1)[1] for line in printed.splitlines() if "reads" in line) == [
        f"{rank} reads from rank 0" for rank in range(NODES)
    ]
    assert status(cluster)["shared_storage"] == f"efs:{stack_outputs()['SharedStorage']}"
    assert "nosuid,nodev" in cluster.on("deeplearning-worker2", "findmnt -n -o OPTIONS /shared | tail -1")


def test_lost_mount_target_does_not_affect_other_jobs(cluster: Cluster) -> None:
    Faults.current().storage_outage()
    try:
        assert alive(cluster) == NODES
        await_states(cluster, {"no-address"})
    finally:
        Faults.current().storage_back()
    await_states(cluster, {"mounted"})
    assert cluster.on("deeplearning-worker3", "cat /shared/told.txt") == "from rank 0"


def test_a_killed_mount_service_reports_it_and_restarts(cluster: Cluster) -> None:
    killed = cluster.on("deeplearning-worker2", f"sudo systemctl kill -s KILL deeplearning-shared; sleep 1; {STATE}")
    assert killed == "stopped"
    await_states(cluster, {"mounted"})
    assert cluster.on("deeplearning-worker2", "cat /shared/told.txt") == "from rank 0"
