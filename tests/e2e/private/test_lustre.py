"""Test that nodes mount an FSx for Lustre file system that a company has, in a VPC without internet.

``make soak`` runs it: it deploys a cluster of its own. Preflight names what the network lacks before the deploy. The
cluster is ready while the servers cannot be reached, and mounts the file system as soon as they can.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from local.faults.clients import client
from local.run.user import User, deploy_arguments
from tests.e2e.private.existing_vpc import NAME, PRIVATE_BLOCK, ExistingVpc, PrivateCluster, existing_vpc
from tests.e2e.support.checkouts import DEPLOY_S, copy_checkout
from tests.e2e.support.shared_directory import STATE, check_that_ranks_share
from tests.waiting import wait_until

TIMEOUT_S = 1500
"""Limit for a test: the first one deploys, and the last one destroys the cluster after a new master booted."""
pytestmark = [pytest.mark.soak, pytest.mark.timeout(TIMEOUT_S)]

NODES = 3
MASTER = f"{NAME}-master"
HOSTS = (MASTER, f"{NAME}-worker2", f"{NAME}-worker3")
CHANGE_S = 150.0
"""Limit for a change of all nodes' states: a mount that times out, the longest pause, and the data plane."""


def tcp(first: int, last: int) -> list[dict[str, Any]]:
    """Return the permission for the nodes' subnet, where the file system is too, to use ports."""
    return [{"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "IpRanges": [{"CidrIp": PRIVATE_BLOCK}]}]


@dataclass(frozen=True, kw_only=True)
class Lustre:
    """A file system of the company."""

    file_system: str
    host: str
    mount_name: str
    group: str
    """Its security group."""


@pytest.fixture(scope="module")
def vpc() -> Iterator[ExistingVpc]:
    with existing_vpc() as made:
        yield made


@pytest.fixture(scope="module")
def lustre(vpc: ExistingVpc) -> Iterator[Lustre]:
    """Make a file system whose group opens only port 988, with which AWS makes it."""
    ec2, fsx = client("ec2"), client("fsx")
    group = ec2.create_security_group(GroupName="lustre", Description="Lustre", VpcId=vpc.vpc_id)["GroupId"]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=tcp(988, 988))
    made = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[vpc.private],
        SecurityGroupIds=[group],
        LustreConfiguration={"DeploymentType": "SCRATCH_2"},
    )["FileSystem"]
    file_system = made["FileSystemId"]

    def is_available() -> bool:
        [description] = fsx.describe_file_systems(FileSystemIds=[file_system])["FileSystems"]
        return bool(description["Lifecycle"] == "AVAILABLE")

    wait_until(is_available, f"{file_system} to be AVAILABLE", timeout_s=60)
    mount_name = made["LustreConfiguration"]["MountName"]
    yield Lustre(file_system=file_system, host=made["DNSName"], mount_name=mount_name, group=group)
    fsx.delete_file_system(FileSystemId=file_system)
    ec2.delete_security_group(GroupId=group)


@pytest.fixture(scope="module")
def cluster(
    user: User, vpc: ExistingVpc, lustre: Lustre, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateCluster]:
    directory = tmp_path_factory.mktemp("lustre")
    made = PrivateCluster(user=replace(user, ssh_config=directory / "config"), checkout=copy_checkout(directory))
    settings = [*vpc.context, "-c", f"shared_storage=lustre:{lustre.file_system}"]
    deploy = ["cdk", *deploy_arguments(nodes=NODES), *settings]
    # Preflight fails because of the problems that this expects.
    printed = made.try_in_checkout("dlcluster", "preflight", *deploy[deploy.index("-c") :]).stdout
    assert " endpoint of fsx: aws ec2 create-vpc-endpoint " in printed
    assert f"{lustre.file_system} ({lustre.group}) lets port 1018 to 1023 in from {PRIVATE_BLOCK}" in printed, printed
    endpoint = vpc.endpoints.create(["fsx"])["fsx"]
    try:
        made.in_checkout(*deploy)
        made.write_ssh_config()
        yield made
    finally:
        made.in_checkout("cdk", "destroy", "--force", *settings)
        vpc.endpoints.delete([endpoint])


def wait_for_states(cluster: PrivateCluster, expected: str) -> None:
    deadline = time.monotonic() + CHANGE_S
    while (states := [cluster.user.ssh(host, STATE).strip() for host in HOSTS]) != [expected] * NODES:
        assert time.monotonic() < deadline, f"shared storage is {states} after {CHANGE_S:g} s, expected {expected}"
        time.sleep(0.5)


def status(cluster: PrivateCluster) -> dict[str, Any]:
    return dict(json.loads(cluster.in_checkout("dlcluster", "--cluster", NAME, "status", "--json")))


def test_jobs_run_while_lustres_ports_are_closed(cluster: PrivateCluster, lustre: Lustre) -> None:
    wait_for_states(cluster, "unreachable")
    assert cluster.user.ssh(MASTER, "launch echo alive").count("alive") == NODES
    client("ec2").authorize_security_group_ingress(GroupId=lustre.group, IpPermissions=tcp(1018, 1023))
    wait_for_states(cluster, "mounted")


def test_what_rank_0_writes_the_other_nodes_read(cluster: PrivateCluster, lustre: Lustre) -> None:
    # The root directory of a file system that exists keeps its owner: its administrator opens it.
    cluster.user.ssh(MASTER, "sudo chmod 1777 /shared")
    check_that_ranks_share(lambda command: cluster.user.ssh(MASTER, command), nodes=NODES)
    assert "nosuid,nodev" in cluster.user.ssh(HOSTS[1], "findmnt -n -o OPTIONS /shared | tail -1")
    assert status(cluster)["shared_storage"] == f"lustre:{lustre.file_system}:{lustre.mount_name}"


def test_failed_lustre_mounts_state_their_reason(cluster: PrivateCluster, lustre: Lustre) -> None:
    def mount(source: str) -> str:
        return cluster.user.ssh(HOSTS[1], f"sudo mount -t lustre -o flock {source} /mnt 2>&1 || true")

    wrong_name, no_system = f"{lustre.host}@tcp:/other", f"fs-0{lustre.host.removeprefix('fs-')}@tcp:/other"
    message = mount(wrong_name)
    assert f"mount.lustre: mount {wrong_name} at /mnt failed: No such file or directory\n" in message
    assert "Is the filesystem name correct?" in message
    assert f"mount.lustre: Can't parse NID '{no_system}'" in mount(no_system)


def test_new_master_mounts_the_file_system(cluster: PrivateCluster) -> None:
    lost = cluster.instances[0]["InstanceId"]
    client("ec2").terminate_instances(InstanceIds=[lost])
    args = cluster.user.ssh_command(MASTER, "cat /var/lib/cloud/data/instance-id")
    deadline = time.monotonic() + DEPLOY_S
    while (instance_id := cluster.try_in_checkout(*args).stdout.strip()) in ("", lost):
        assert time.monotonic() < deadline, f"waited {DEPLOY_S} s for another master"
        time.sleep(1)
    assert instance_id == cluster.instances[0]["InstanceId"]
    wait_for_states(cluster, "mounted")
    assert cluster.user.ssh(MASTER, "cat /shared/told.txt") == "from rank 0"
    wait_until(
        lambda: [node["shared_storage"] for node in status(cluster)["nodes"]] == ["mounted"] * NODES,
        "the status to show all nodes mounted",
        timeout_s=CHANGE_S,
    )
