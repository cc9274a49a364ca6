"""Test that faults have their documented effect on real nodes, affect no others, and can be undone.

No cluster is needed; the tests are in jobs/ because this part of the gate is the shortest.
"""

import errno
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import boto3
import pytest

from local.faults import Faults
from local.network.vpc_network import find_router, in_namespace
from local.node.spot_notices import INTERRUPTION
from tests.e2e.jobs.bare_node import (
    CONNECT_TIMEOUT_S,
    SSH,
    TIMEOUT_S,
    BareNode,
    boot_id_of,
    state,
    wait_for_metadata,
    wait_for_sshd,
)
from tests.e2e.support.deployed_cluster import node_disk
from tests.waiting import wait_until

NODES = 5


@pytest.fixture(scope="module")
def faults() -> Faults:
    return Faults.current()


@pytest.fixture(scope="module")
def nodes(faults: Faults) -> Iterator[list[BareNode]]:
    """Start instances in the default VPC and wait until they have booted."""
    ec2: Any = boto3.client("ec2")
    subnet = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"][0]["SubnetId"]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    group = ec2.create_security_group(GroupName="members", Description="open to each other")["GroupId"]
    own = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[own])
    made = ec2.run_instances(
        ImageId=image,
        MinCount=NODES,
        MaxCount=NODES,
        SubnetId=subnet,
        InstanceType="c5.large",
        SecurityGroupIds=[group],
    )
    ids = [instance["InstanceId"] for instance in made["Instances"]]
    for name in ids:
        finished = node_disk(name) / f"var/lib/cloud/instances/{name}/boot-finished"
        wait_until(finished.exists, f"{name} to boot", timeout_s=TIMEOUT_S)
    yield [BareNode(handle=faults.node(i["InstanceId"]), address=i["PrivateIpAddress"]) for i in made["Instances"]]
    ec2.terminate_instances(InstanceIds=ids)
    wait_until(lambda: not any(node_disk(name).exists() for name in ids), "the nodes to be gone", timeout_s=TIMEOUT_S)
    ec2.delete_security_group(GroupId=group)


@pytest.fixture
def three_nodes(nodes: list[BareNode], faults: Faults) -> Iterator[list[BareNode]]:
    """Return three nodes that are healthy before the test, and undo all faults after it."""
    for one in nodes[:3]:
        for other in nodes[:3]:
            wait_for_sshd(one, other)
    yield nodes[:3]
    faults.undo_all()


def test_frozen_node_answers_nothing_until_thawed(three_nodes: list[BareNode], faults: Faults) -> None:
    frozen, other, _ = three_nodes
    boot_id = boot_id_of(frozen)
    for _ in range(2):
        faults.freeze(frozen.name)
    assert not other.pings(frozen)
    assert not other.reaches_sshd(frozen)
    assert state(frozen) == "running"
    faults.end_freeze(frozen.name)
    wait_until(lambda: other.pings(frozen), "an answer to a ping", timeout_s=TIMEOUT_S)
    wait_for_sshd(other, frozen)
    assert boot_id_of(frozen) == boot_id


def test_partition_of_a_pair_affects_no_other_node(three_nodes: list[BareNode], faults: Faults) -> None:
    one, two, three = three_nodes
    for _ in range(2):
        faults.partition(one.name, two.name)
    assert not one.reaches_sshd(two)
    assert not two.reaches_sshd(one)
    assert not one.pings(two)
    wait_for_sshd(one, three)
    wait_for_sshd(three, two)
    wait_for_metadata(one)
    faults.end_partition(two.name, one.name)
    wait_for_sshd(one, two)
    wait_for_sshd(two, one)


def test_established_connections_are_cut_and_resume(three_nodes: list[BareNode], faults: Faults) -> None:
    one, two, _ = three_nodes
    connection = in_namespace(one.name, lambda: socket.create_connection((two.address, SSH), timeout=TIMEOUT_S))
    with closing(connection):
        assert connection.recv(1024).startswith(b"SSH-2.0-")
        connection.settimeout(CONNECT_TIMEOUT_S)
        faults.partition(one.name, two.name)
        connection.sendall(b"SSH-2.0-test\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1024)
        faults.end_partition(one.name, two.name)
        connection.settimeout(TIMEOUT_S)
        assert connection.recv(1024)


def rules(node: BareNode, table: str) -> str:
    command = ["ip", "netns", "exec", find_router(node.name), "nft", "list", "table", "inet", table]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30).stdout


def test_partition_outlives_a_change_of_the_firewall(three_nodes: list[BareNode], faults: Faults) -> None:
    one, two, three = three_nodes
    faults.partition(one.name)
    ec2 = boto3.client("ec2")
    group = ec2.create_security_group(GroupName="new", Description="changes the firewall")["GroupId"]
    wait_until(
        lambda: group.replace("-", "_") in rules(one, "vpc"), "the firewall to be loaded again", timeout_s=TIMEOUT_S
    )
    ec2.delete_security_group(GroupId=group)
    assert not two.reaches_sshd(one)
    assert not one.reaches_sshd(three)
    assert not one.metadata_answers()
    wait_for_sshd(two, three)
    wait_for_metadata(two)
    faults.end_partition(one.name)
    wait_for_sshd(two, one)
    wait_for_metadata(one)


def test_metadata_outage_affects_one_node(three_nodes: list[BareNode], faults: Faults) -> None:
    one, two, _ = three_nodes
    faults.metadata_outage(one.name)
    assert not one.metadata_answers()
    wait_for_sshd(one, two)
    wait_for_metadata(two)
    faults.end_metadata_outage(one.name)
    wait_for_metadata(one)


def test_rebooted_node_is_the_same_machine_with_another_boot_id(three_nodes: list[BareNode], faults: Faults) -> None:
    rebooted, other, _ = three_nodes
    rebooted.handle.run("touch", "/root/kept", "/run/lost")
    boot_id = boot_id_of(rebooted)
    faults.reboot(rebooted.name)
    wait_until(lambda: boot_id_of(rebooted) not in (boot_id, None), "another boot id", timeout_s=TIMEOUT_S)
    wait_for_sshd(other, rebooted)
    assert rebooted.handle.run("ls", "/root/kept").strip() == "/root/kept"
    assert not rebooted.handle.path("/run/lost").exists()
    assert state(rebooted) == "running"
    again = boot_id_of(rebooted)
    time.sleep(2)
    assert boot_id_of(rebooted) == again, "it was asked for once"


def test_full_disk_refuses_writes_until_it_is_freed(three_nodes: list[BareNode], faults: Faults) -> None:
    full, other, _ = three_nodes
    before = os.statvfs(full.handle.directory)
    for _ in range(2):
        faults.fill_disk(full.name)
    assert full.writes() == errno.ENOSPC
    assert full.handle.run("df", "--output=avail", "/").split()[-1] == "0"
    assert other.writes() == 0
    after = os.statvfs(full.handle.directory)
    assert (before.f_bavail - after.f_bavail) * after.f_frsize < 1 << 30, "it took room on this machine"
    faults.end_fill_disk(full.name)
    assert full.writes() == 0


def test_heal_undoes_everything_and_is_idempotent(three_nodes: list[BareNode], faults: Faults) -> None:
    one, two, three = three_nodes
    faults.freeze(one.name)
    faults.partition(two.name)
    faults.partition(two.name, three.name)
    faults.metadata_outage(three.name)
    faults.fill_disk(three.name)
    faults.throttle("ec2")
    assert rules(one, "faults")
    for _ in range(2):
        faults.undo_all()
    assert rules(one, "faults") == ""
    assert three.writes() == 0
    wait_for_metadata(three)
    wait_for_sshd(two, three)
    wait_for_sshd(two, one)


def test_killed_node_is_dead_at_once_and_then_terminated(nodes: list[BareNode], faults: Faults) -> None:
    killed, other = nodes[3], nodes[0]
    wait_for_sshd(other, killed)
    for _ in range(2):
        faults.kill(killed.name)
    assert not other.reaches_sshd(killed)
    wait_until(lambda: state(killed) == "terminated", "EC2 to show that it is terminated", timeout_s=TIMEOUT_S)
    wait_until(lambda: not killed.handle.directory.exists(), "the node to be gone", timeout_s=TIMEOUT_S)
    log = killed.handle.directory.parents[1] / "log" / f"{killed.name}.cloud-init.log"
    assert "DataSourceEc2" in log.read_text()
    faults.kill(killed.name)


def test_spot_instance_gets_its_notice_and_then_ends(nodes: list[BareNode], faults: Faults) -> None:
    spot = nodes[4]
    faults.rebalance_recommendation(spot.name)
    started = time.monotonic()
    faults.spot_notice(spot.name, seconds=15)
    notice = spot.handle.directory.parents[1] / "notices" / spot.name / INTERRUPTION
    assert '"action": "terminate"' in notice.read_text()
    assert state(spot) == "running"
    faults.freeze(spot.name)  # even a hanging node ends
    wait_until(lambda: state(spot) == "terminated", "the instance to end", timeout_s=TIMEOUT_S)
    assert time.monotonic() - started > 13.5, "it ended before the time that it was told"
    wait_until(lambda: not notice.exists(), "the notice to go with the instance", timeout_s=TIMEOUT_S)
    wait_until(lambda: not spot.handle.directory.exists(), "the node to be gone", timeout_s=TIMEOUT_S)
