"""Who reaches which port of which node: from the administrator's address, from elsewhere, and between members.

Every port that is tried has a program listening on every node, so that a closed port is not taken for a filtered one;
and each check is seen to fail when a rule is taken away or added.
"""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import boto3
import pytest

from local.fabric import in_namespace
from local.network import ROUTER, USER_ADDRESS
from local.user import deploy_arguments
from tests.e2e.conftest import NODES, STACK, Cluster, aliases, group_instances, stack_outputs

OUTSIDER = "198.51.100.77"
"""An address of the internet that is not in ssh_location."""
SSH = 22
PORTS = (80, 111, 443, 2049, 6006, 8080, 8888, 29500, 45678, 65535)
"""Ports of what people start on such nodes, of NFS and its port mapper, of training, and high ones."""
EVERY_PORT = (SSH, *PORTS)
CONNECT_TIMEOUT_S = 2.0
FIREWALL_S = 20.0
"""How long a changed rule may take to be in force."""

Address = tuple[str, int]


@contextmanager
def listening(instance_id: str) -> Iterator[None]:
    """Programs that accept connections on a node, on every address and tried port but sshd's."""
    with ExitStack() as sockets:
        for listener in in_namespace(instance_id, lambda: [socket.create_server(("0.0.0.0", port)) for port in PORTS]):
            sockets.enter_context(closing(listener))
        yield


@pytest.fixture(scope="module")
def listened(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a program behind every tried port of every node."""
    with ExitStack() as nodes:
        for instance_id in cluster.addresses:
            nodes.enter_context(listening(instance_id))
        yield cluster


@pytest.fixture(scope="module")
def outsider() -> Iterator[str]:
    """A second machine on the internet: one more address of this one, to which the router knows the way."""
    own = ["ip", "addr", "add", f"{OUTSIDER}/32", "dev", "lo"]
    route = ["ip", "-n", ROUTER, "route", "add", f"{OUTSIDER}/32", "via", USER_ADDRESS]
    for command in (own, route):
        subprocess.run(command, check=True)
    yield OUTSIDER
    for command in (route, own):
        subprocess.run([word if word != "add" else "del" for word in command], check=True)


def connects(source: str, target: Address) -> bool:
    try:
        with socket.create_connection(target, timeout=CONNECT_TIMEOUT_S, source_address=(source, 0)):
            return True
    except OSError:
        return False


def open_ports(source: str, address: str) -> set[int]:
    """Ports of an address that accept a connection from a source."""
    with ThreadPoolExecutor(max_workers=len(EVERY_PORT)) as pool:
        answers = pool.map(lambda port: connects(source, (address, port)), EVERY_PORT)
        return {port for port, answered in zip(EVERY_PORT, answers, strict=True) if answered}


def from_member(instance_id: str, source: str, address: str) -> set[int]:
    """The same, asked by a node."""
    return in_namespace(instance_id, lambda: open_ports(source, address))


def other_addresses(cluster: Cluster) -> list[str]:
    """Where the internet could look for nodes other than at the master's public address.

    The local internet carries packets to private addresses too, as a network that is peered with the VPC would.
    """
    gateways = boto3.client("ec2").describe_nat_gateways(Filters=[{"Name": "state", "Values": ["available"]}])
    nat = [address["PublicIp"] for gateway in gateways["NatGateways"] for address in gateway["NatGatewayAddresses"]]
    assert nat
    return [*(worker["PrivateIpAddress"] for worker in cluster.instances[1:]), *nat]


def master_address(cluster: Cluster) -> str:
    return str(cluster.master["PublicIpAddress"])


def test_from_inside_ssh_location_only_the_masters_ssh_port(listened: Cluster) -> None:
    assert open_ports(USER_ADDRESS, master_address(listened)) == {SSH}


def test_the_masters_ssh_port_is_answered_by_sshd(cluster: Cluster) -> None:
    with socket.create_connection((master_address(cluster), SSH), timeout=10) as connection:
        connection.settimeout(10)
        assert connection.recv(8) == b"SSH-2.0-"


def test_from_elsewhere_nothing(listened: Cluster, outsider: str) -> None:
    assert open_ports(outsider, master_address(listened)) == set()


def test_no_node_is_reached_at_another_address(listened: Cluster, outsider: str) -> None:
    for address in other_addresses(listened):
        for source in (USER_ADDRESS, outsider):
            assert (address, source, open_ports(source, address)) == (address, source, set())


def datagram_arrives(receiver: str, send: Callable[[], None]) -> bool:
    """Whether a node hears what is sent to its port 45678."""

    def bound() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("0.0.0.0", 45678))
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
        sender.sendto(b"datagram", (address, 45678))


def pings(address: str) -> bool:
    command = ["ping", "-c", "1", "-W", "2", address]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=30).returncode == 0


def test_other_protocols_come_from_members_only(cluster: Cluster) -> None:
    master, worker = cluster.master["InstanceId"], cluster.instances[1]["InstanceId"]
    private, public = cluster.addresses[master], master_address(cluster)
    assert datagram_arrives(master, lambda: in_namespace(worker, lambda: sent_to(private)))
    assert not datagram_arrives(master, lambda: sent_to(public))
    assert in_namespace(worker, lambda: pings(private))
    assert not pings(public)


def test_between_members_every_port(listened: Cluster) -> None:
    for (sender, source), (_, address) in permutations(listened.addresses.items(), 2):
        assert from_member(sender, source, address) == set(EVERY_PORT)


# ---- each check can fail ----


def await_ports(scan: Callable[[], set[int]], wanted: set[int]) -> None:
    deadline = time.monotonic() + FIREWALL_S
    while (found := scan()) != wanted:
        assert time.monotonic() < deadline, f"waited {FIREWALL_S:.0f} s for the ports {wanted}, open are {found}"
        time.sleep(0.2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """An ingress rule: where it is, and its permission as EC2 describes it."""

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


def test_fails_when_the_administrators_rule_is_revoked(listened: Cluster) -> None:
    group_id = stack_outputs()["AdminSSHSecurityGroup"]
    (permission,) = permissions(group_id)
    rule = Rule(group_id=group_id, permission=permission)

    def scan() -> set[int]:
        return open_ports(USER_ADDRESS, master_address(listened))

    rule.remove()
    try:
        await_ports(scan, set())
    finally:
        rule.add()
    await_ports(scan, {SSH})


def test_fails_when_members_may_not_reach_each_other(listened: Cluster) -> None:
    master, worker = listened.master, listened.instances[1]
    (group_id,) = group_ids(worker)
    pairs = [pair for permission in permissions(group_id) for pair in permission["UserIdGroupPairs"]]
    (pair,) = [pair for pair in pairs if pair["GroupId"] in group_ids(master)]
    rule = Rule(group_id=group_id, permission={"IpProtocol": "-1", "UserIdGroupPairs": [pair]})

    def scan() -> set[int]:
        return from_member(master["InstanceId"], master["PrivateIpAddress"], worker["PrivateIpAddress"])

    rule.remove()
    try:
        await_ports(scan, set())
    finally:
        rule.add()
    await_ports(scan, set(EVERY_PORT))


@pytest.mark.parametrize("position", [0, 1], ids=["master", "worker"])
def test_fails_when_a_port_is_opened_to_elsewhere(listened: Cluster, outsider: str, position: int) -> None:
    node = listened.instances[position]
    address = node.get("PublicIpAddress") or node["PrivateIpAddress"]
    ranges = [{"CidrIp": f"{outsider}/32"}]
    permission = {"IpProtocol": "tcp", "FromPort": 8080, "ToPort": 8080, "IpRanges": ranges}
    rule = Rule(group_id=group_ids(node)[0], permission=permission)
    rule.add()
    try:
        await_ports(lambda: open_ports(outsider, address), {8080})
    finally:
        rule.remove()
    await_ports(lambda: open_ports(outsider, address), set())


# ---- ssh_location changes in place ----


def instance_ids() -> set[str]:
    outputs = stack_outputs()
    groups = (outputs["MasterAutoScalingGroup"], outputs["WorkerAutoScalingGroup"])
    return {instance["InstanceId"] for group in groups for instance in group_instances(group)}


def starts(cluster: Cluster) -> dict[str, str]:
    """What changes when a node is booted again or its agent is started again."""
    command = (
        "cat /proc/sys/kernel/random/boot_id"
        " && systemctl show -p ActiveEnterTimestamp --value deeplearning-agent ssh systemd-journald"
    )
    return {alias: cluster.on(alias, command) for alias in aliases()}


def updated_resources(since: set[str]) -> list[str]:
    """Types of the resources that the stack has changed since it had these events, the stack itself aside."""
    events = boto3.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"]
    new = [event for event in events if event["EventId"] not in since]
    assert new
    return sorted({e["ResourceType"] for e in new if e["LogicalResourceId"] != STACK})


def properties() -> dict[tuple[str, str], Any]:
    """The deployed template's, by logical id and name."""
    body: Any = boto3.client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
    resources = (body if isinstance(body, dict) else json.loads(body))["Resources"]
    return {
        (logical_id, name): value
        for logical_id, resource in resources.items()
        for name, value in resource.get("Properties", {}).items()
    }


def changed(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> set[str]:
    """Names of the properties that differ: AWS documents for each whether it replaces the resource."""
    return {key[1] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def event_ids() -> set[str]:
    events = boto3.client("cloudformation").describe_stack_events(StackName=STACK)["StackEvents"]
    return {event["EventId"] for event in events}


def deploy(cluster: Cluster, ssh_location: str) -> None:
    cluster.user.cdk(*deploy_arguments(nodes=NODES), "-c", f"ssh_location={ssh_location}")


def test_ssh_location_changes_in_place(listened: Cluster, outsider: str) -> None:
    before, ids, events = starts(listened), instance_ids(), event_ids()
    public, template = master_address(listened), properties()
    deploy(listened, f"{outsider}/32")
    try:
        await_ports(lambda: open_ports(outsider, public), {SSH})
        await_ports(lambda: open_ports(USER_ADDRESS, public), set())
        assert instance_ids() == ids
        assert updated_resources(events) == ["AWS::EC2::SecurityGroup"]
        assert changed(template, properties()) == {"SecurityGroupIngress"}
    finally:
        deploy(listened, f"{USER_ADDRESS}/32")
    await_ports(lambda: open_ports(USER_ADDRESS, public), {SSH})
    await_ports(lambda: open_ports(outsider, public), set())
    assert instance_ids() == ids
    assert starts(listened) == before
