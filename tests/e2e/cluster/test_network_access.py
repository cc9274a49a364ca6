"""Test that ports of nodes are reachable only as intended: from the administrator's address, elsewhere, and members.

A program listens on every tried port of every node, so that a closed port is not mistaken for a filtered one; and each
check is shown to fail when a rule is removed or added.
"""

import socket
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import boto3

from local.network.addresses import USER_ADDRESS
from local.network.vpc_network import in_namespace
from tests.e2e.support.deployed_cluster import DeployedCluster, stack_outputs
from tests.e2e.support.port_scan import (
    CONNECT_TIMEOUT_S,
    SSH,
    TRIED_PORTS,
    answering_ports,
    open_ports,
    open_ports_from_node,
    wait_for_ports,
)


def other_addresses(cluster: DeployedCluster) -> list[str]:
    """List addresses, apart from the master's public one, at which the internet could look for nodes.

    The local internet also carries packets to private addresses, like a network that is peered with the VPC.
    """
    gateways = boto3.client("ec2").describe_nat_gateways(Filters=[{"Name": "state", "Values": ["available"]}])
    nat = [address["PublicIp"] for gateway in gateways["NatGateways"] for address in gateway["NatGatewayAddresses"]]
    assert nat
    return [*(worker["PrivateIpAddress"] for worker in cluster.instances[1:]), *nat]


def test_only_the_masters_ssh_port_answers_inside_ssh_location(listening_cluster: DeployedCluster) -> None:
    assert open_ports(USER_ADDRESS, listening_cluster.public_address) == {SSH}


def test_of_all_ports_only_the_masters_ssh_port_answers(listening_cluster: DeployedCluster) -> None:
    assert answering_ports(USER_ADDRESS, listening_cluster.public_address) == {SSH: True}


def test_masters_ssh_port_is_answered_by_sshd(cluster: DeployedCluster) -> None:
    with socket.create_connection((cluster.public_address, SSH), timeout=60) as connection:
        connection.settimeout(60)
        assert connection.recv(8) == b"SSH-2.0-"


def test_nothing_answers_outside_ssh_location(listening_cluster: DeployedCluster, outside_address: str) -> None:
    assert open_ports(outside_address, listening_cluster.public_address) == set()


def test_no_other_address_reaches_a_node(listening_cluster: DeployedCluster, outside_address: str) -> None:
    for address in other_addresses(listening_cluster):
        for source in (USER_ADDRESS, outside_address):
            assert (address, source, open_ports(source, address)) == (address, source, set())


def datagram_arrives(receiver: str, send: Callable[[], None]) -> bool:
    """Return True if a node receives what is sent to its port 61234."""

    def bound() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("0.0.0.0", 61234))
        return made

    with closing(in_namespace(receiver, bound)) as heard:
        heard.settimeout(CONNECT_TIMEOUT_S)
        send()
        try:
            return heard.recv(16) == b"datagram"
        except TimeoutError:
            return False


def sent_to(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"datagram", (address, 61234))


def pings(address: str) -> bool:
    command = ["ping", "-c", "1", "-W", "2", address]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=30).returncode == 0


def test_other_protocols_come_from_members_only(cluster: DeployedCluster) -> None:
    master, worker = cluster.master["InstanceId"], cluster.instances[1]["InstanceId"]
    private, public = cluster.addresses[master], cluster.public_address
    assert datagram_arrives(master, lambda: in_namespace(worker, lambda: sent_to(private)))
    assert not datagram_arrives(master, lambda: sent_to(public))
    assert in_namespace(worker, lambda: pings(private))
    assert not pings(public)


def test_every_port_is_open_between_members(listening_cluster: DeployedCluster) -> None:
    for (sender, source), (_, address) in permutations(listening_cluster.addresses.items(), 2):
        assert open_ports_from_node(sender, source, address) == set(TRIED_PORTS)


# ---- each check can fail ----


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """An ingress rule, with its permission as EC2 describes it."""

    group_id: str
    permission: dict[str, Any]

    def add(self) -> None:
        ec2: Any = boto3.client("ec2")
        ec2.authorize_security_group_ingress(GroupId=self.group_id, IpPermissions=[self.permission])

    def remove(self) -> None:
        ec2: Any = boto3.client("ec2")
        ec2.revoke_security_group_ingress(GroupId=self.group_id, IpPermissions=[self.permission])


def group_ids(instance: dict[str, Any]) -> list[str]:
    return sorted(group["GroupId"] for group in instance["SecurityGroups"])


def permissions(group_id: str) -> list[dict[str, Any]]:
    found = boto3.client("ec2").describe_security_groups(GroupIds=[group_id])["SecurityGroups"][0]
    return [dict(permission) for permission in found["IpPermissions"]]


def test_revoked_rule_of_the_administrator_closes_every_port(listening_cluster: DeployedCluster) -> None:
    group_id = stack_outputs()["AdminSSHSecurityGroup"]
    (permission,) = permissions(group_id)
    rule = Rule(group_id=group_id, permission=permission)

    def scan() -> set[int]:
        return open_ports(USER_ADDRESS, listening_cluster.public_address)

    rule.remove()
    try:
        wait_for_ports(scan, set())
    finally:
        rule.add()
    wait_for_ports(scan, {SSH})


def test_members_without_their_rule_reach_no_port(listening_cluster: DeployedCluster) -> None:
    master, worker = listening_cluster.master, listening_cluster.instances[1]
    (group_id,) = group_ids(worker)
    pairs = [pair for permission in permissions(group_id) for pair in permission["UserIdGroupPairs"]]
    (pair,) = [pair for pair in pairs if pair["GroupId"] in group_ids(master)]
    rule = Rule(group_id=group_id, permission={"IpProtocol": "-1", "UserIdGroupPairs": [pair]})

    def scan() -> set[int]:
        return open_ports_from_node(master["InstanceId"], master["PrivateIpAddress"], worker["PrivateIpAddress"])

    rule.remove()
    try:
        wait_for_ports(scan, set())
    finally:
        rule.add()
    wait_for_ports(scan, set(TRIED_PORTS))


def test_forwarding_to_another_host_is_refused(listening_cluster: DeployedCluster, outside_address: str) -> None:
    master, worker = listening_cluster.master, listening_cluster.instances[1]
    permission = {
        "IpProtocol": "tcp",
        "FromPort": 8080,
        "ToPort": 8080,
        "IpRanges": [{"CidrIp": f"{outside_address}/32"}],
    }
    rules = [Rule(group_id=group_ids(node)[0], permission=permission) for node in (master, worker)]
    for rule in rules:
        rule.add()
    try:
        wait_for_ports(lambda: open_ports(outside_address, listening_cluster.public_address), {8080})
        # Its address is private, so no rule lets anybody outside reach it.
        assert open_ports(outside_address, worker["PrivateIpAddress"]) == set()
    finally:
        for rule in rules:
            rule.remove()
    wait_for_ports(lambda: open_ports(outside_address, listening_cluster.public_address), set())
