"""Test that a node with its own mounted disk names a directory there, once the agent has noticed the mount."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.support.deployed_cluster import DeployedCluster

NODE = "deeplearning-worker2"
MOUNT = "/opt/dlami/nvme"
NOTICED_S = 60.0
CONNECT_ANEW = "DEEPLEARNING_CONNECTION_IDLE_S=0"
ECHO = "sh -c 'echo scratch=$DEEPLEARNING_SCRATCH'"
SHOW = "echo $DEEPLEARNING_SCRATCH"


@pytest.fixture
def disk(cluster: DeployedCluster) -> Iterator[None]:
    """Mount a stand-in for the NVMe disks where the Deep Learning AMI mounts them."""
    assert cluster.on(NODE, SHOW) == ""
    cluster.on(NODE, f"sudo mkdir -p {MOUNT} && sudo mount -t tmpfs -o size=64m,mode=755 scratch {MOUNT}")
    yield
    # The agent opens the directory there in each pass.
    cluster.on(NODE, f"sudo umount --lazy {MOUNT}")
    wait_for_scratch(cluster, "")


def wait_for_scratch(cluster: DeployedCluster, expected: str) -> None:
    deadline = time.monotonic() + NOTICED_S
    # A shared connection keeps the variables with which it started.
    while (found := cluster.user.ssh(NODE, SHOW).strip()) != expected:
        assert time.monotonic() < deadline, f"DEEPLEARNING_SCRATCH is {found!r} after {NOTICED_S:g} s"
        time.sleep(1.0)


@pytest.mark.usefixtures("disk")
def test_login_user_can_write_to_the_scratch_disk(cluster: DeployedCluster) -> None:
    wait_for_scratch(cluster, f"{MOUNT}/deeplearning")
    touch = "touch $DEEPLEARNING_SCRATCH/mine && stat -c %U $DEEPLEARNING_SCRATCH/mine"
    assert cluster.user.ssh(NODE, touch).strip() == "ubuntu"
    output = cluster.on("deeplearning-master", f"{CONNECT_ANEW} launch {ECHO}")
    # One node has it; the others have no disk of their own.
    assert output.count(f"scratch={MOUNT}/deeplearning") == 1, output
    assert output.count("scratch=") == 3, output
