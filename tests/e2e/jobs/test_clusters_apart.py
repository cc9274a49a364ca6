"""Test that two clusters in one account with the same addresses do not affect each other, even when one is destroyed.

It needs two clusters, and is in jobs/ because this part of the gate is the shortest.
"""

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest

from local.faults import Faults
from local.faults.clients import client
from local.network.vpc_network import in_namespace, routers
from local.run.user import deploy_arguments
from tests.e2e.support.deployed_cluster import NODES, STACK, DeployedCluster, group_instances
from tests.e2e.support.port_scan import CONNECT_TIMEOUT_S, LISTENING_PORTS, SSH, Address, listening
from tests.waiting import wait_until

OTHER = "other"
GONE_S = 120.0
"""Timeout for what the data plane removes after the end of an instance."""
CONTEXT = ("-c", f"cluster_name={OTHER}")
STOP = "/tmp/no-more-trainings"
TRAINING = "python /opt/deeplearning/trainer --kv-store dist_sync --num-epochs 8"
TRAININGS = f"cd && until [ -e {STOP} ]; do launch {TRAINING} 2>&1 || exit; done"
"""Command that repeats training, so that a job is in progress while and after the other cluster is destroyed."""


def addresses(instances: list[dict[str, Any]]) -> dict[str, str]:
    return {i["PrivateIpAddress"]: i["InstanceId"] for i in instances}


@pytest.fixture(scope="module")
def other(cluster: DeployedCluster) -> Iterator[list[dict[str, Any]]]:
    """Deploy a second cluster, whose settings differ only in the name; return its instances."""
    cluster.user.cdk(*deploy_arguments(nodes=NODES), *CONTEXT)
    stack = client("cloudformation").describe_stacks(StackName=OTHER)["Stacks"][0]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    yield [i for kind in ("Master", "Worker") for i in group_instances(outputs[f"{kind}AutoScalingGroup"])]
    cluster.user.cdk("destroy", "--force", *CONTEXT)  # if the test that destroys it has failed


def test_clusters_with_equal_addresses_know_their_own_nodes(
    cluster: DeployedCluster, other: list[dict[str, Any]]
) -> None:
    own, foreign = addresses(list(cluster.instances)), addresses(other)
    assert len(own.keys() & foreign.keys()) >= 1, "nothing is tested where no address is used twice"
    assert len(own) == len(foreign) == NODES
    assert set(Faults.current().instances(STACK).values()) == set(own.values())
    assert set(Faults.current().instances(OTHER).values()) == set(foreign.values())


def accepting(instance_id: str, targets: Sequence[Address]) -> int:
    """Count the addresses and ports that accept a connection from a node."""

    def accepts(target: Address) -> bool:
        try:
            socket.create_connection(target, timeout=CONNECT_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    return in_namespace(instance_id, lambda: sum(map(accepts, targets)))


def test_no_node_reaches_the_other_cluster(cluster: DeployedCluster, other: list[dict[str, Any]]) -> None:
    own, foreign, port = addresses(list(cluster.instances)), addresses(other), LISTENING_PORTS[-1]
    with ExitStack() as programs:
        for instance_id in foreign.values():
            programs.enter_context(listening(instance_id))
        for instance_id in foreign.values():
            assert accepting(instance_id, [(address, port) for address in foreign]) == len(foreign)
        for instance_id in own.values():
            # Nothing listens there in its own VPC.
            assert accepting(instance_id, [(address, port) for address in foreign]) == 0
        public = str(other[0]["PublicIpAddress"])
        for instance_id in own.values():
            assert accepting(instance_id, [(public, SSH), (public, port)]) == 0


def test_destroying_one_cluster_leaves_the_other_training(
    cluster: DeployedCluster, other: list[dict[str, Any]]
) -> None:
    user, vpc = cluster.user, other[0]["VpcId"]
    args = user.ssh_command("deeplearning-master", TRAININGS)
    with subprocess.Popen(
        args, env=dict(user.environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            seen = [next(line for line in process.stdout if "Epoch[0]" in line)]
            assert vpc in routers()
            user.cdk("destroy", "--force", *CONTEXT)
            cluster.on("deeplearning-master", f"touch {STOP}")
            seen += process.stdout
            assert process.wait() == 0, "".join(seen)
        finally:
            process.kill()
    printed = "".join(seen)
    assert "launch: restart" not in printed
    accuracies = re.findall(r"Validation-accuracy=([\d.]+) images/s=", printed)
    assert accuracies, printed
    assert all(float(accuracy) >= 0.9 for accuracy in accuracies), printed
    disks = [Path(os.environ["LOCAL_AWS_DIR"], "nodes", i["InstanceId"]) for i in other]
    wait_until(lambda: vpc not in routers(), "the other cluster's router to be gone", timeout_s=GONE_S)
    wait_until(lambda: not any(disk.exists() for disk in disks), "its nodes to be gone", timeout_s=GONE_S)
    left = boto3.client("ec2").describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
    assert [instance["VpcId"] for instance in left] == [cluster.master["VpcId"]]
