"""Test what is read from EC2 of the instances that become nodes."""

from ipaddress import IPv4Interface
from typing import Any

import pytest

from local.node.inventory import read_inventory, target_state

GOOD = "i-00000000000000001"
HALF = "i-00000000000000002"


def item(instance_id: str, **changes: Any) -> dict[str, Any]:
    return {
        "InstanceId": instance_id,
        "InstanceType": "c5.large",
        "ImageId": "ami-1",
        "SubnetId": "subnet-1",
        "VpcId": "vpc-1",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "PrivateIpAddress": "10.0.0.4",
        "PublicIpAddress": "198.18.0.4",
        "SecurityGroups": [{"GroupId": "sg-1"}],
        "NetworkInterfaces": [interface(1, 0, "efa-only"), interface(0, 0, "interface", "10.0.0.4")],
    } | changes


def interface(card: int, device: int, kind: str, address: str | None = None) -> dict[str, Any]:
    return {
        "NetworkInterfaceId": f"eni-{card}{device}",
        "MacAddress": f"02:00:00:00:0{card}:0{device}",
        "Attachment": {"NetworkCardIndex": card, "DeviceIndex": device},
        "InterfaceType": kind,
        "Groups": [{"GroupId": "sg-1"}],
    } | ({"PrivateIpAddress": address} if address else {})


class ControlPlane:
    """Answers like EC2 and Auto Scaling, with a test's data."""

    def __init__(self, *items: dict[str, Any], gateway: str | None = "igw-1", state: str = "InService") -> None:
        self.items = items
        self.gateway = gateway
        self.state = state

    def describe_subnets(self) -> dict[str, Any]:
        return {"Subnets": [{"SubnetId": "subnet-1", "CidrBlock": "10.0.0.0/24"}]}

    def describe_route_tables(self) -> dict[str, Any]:
        routes = [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": self.gateway}] if self.gateway else []
        return {"RouteTables": [{"Routes": routes, "Associations": [{"SubnetId": "subnet-1"}]}]}

    def describe_vpc_endpoints(self) -> dict[str, Any]:
        states = {"vpc-1": "Available", "vpc-2": "deleting"}
        return {"VpcEndpoints": [{"VpcId": vpc_id, "State": state} for vpc_id, state in states.items()]}

    def describe_nat_gateways(self) -> dict[str, Any]:
        return {"NatGateways": [{"NatGatewayId": "nat-1", "State": "available", "NatGatewayAddresses": []}]}

    def describe_instances(self, Filters: Any) -> dict[str, Any]:  # noqa: N803  (AWS's name)
        return {"Reservations": [{"Instances": [*self.items]}]}

    def describe_security_groups(self) -> dict[str, Any]:
        return {"SecurityGroups": []}

    def describe_auto_scaling_instances(self) -> dict[str, Any]:
        return {"AutoScalingInstances": [{"InstanceId": GOOD, "LifecycleState": self.state}]}


def read(control_plane: Any) -> Any:
    return read_inventory(control_plane, control_plane)


def test_instance_has_its_public_address_and_target_state() -> None:
    inventory = read(ControlPlane(item(GOOD), state="Terminating:Wait"))
    (instance,) = inventory.instances
    assert instance.address == IPv4Interface("10.0.0.4/24")
    assert instance.public_address == instance.internet_address == "198.18.0.4"
    assert instance.target_state == "Terminated"


def test_interfaces_are_those_that_ec2_describes_the_primary_first() -> None:
    (instance,) = read(ControlPlane(item(GOOD))).instances
    interfaces = [(nic.network_card_index, nic.interface_type, nic.address, nic.has_efa) for nic in instance.interfaces]
    assert interfaces == [(0, "interface", "10.0.0.4", False), (1, "efa-only", None, True)]


def test_public_address_without_a_route_is_not_reachable() -> None:
    (instance,) = read(ControlPlane(item(GOOD), gateway=None)).instances
    assert (instance.public_address, instance.internet_address) == ("198.18.0.4", None)


def test_vpc_whose_endpoints_are_going_has_none() -> None:
    assert read(ControlPlane(item(GOOD))).vpcs_with_endpoints == {"vpc-1"}


def test_instance_without_a_group_has_no_target() -> None:
    (instance,) = read(ControlPlane(item(HALF))).instances
    assert instance.target_state is None


@pytest.mark.parametrize("gone", ["PrivateIpAddress", "SubnetId", "SecurityGroups", "Placement", "NetworkInterfaces"])
def test_incomplete_record_is_unreadable_and_others_are_read(gone: str) -> None:
    half = item(HALF)
    del half[gone]
    inventory = read(ControlPlane(half, item(GOOD)))
    assert [i.instance_id for i in inventory.instances] == [GOOD]
    assert inventory.unreadable == {HALF}


def test_instance_of_a_deleted_subnet_is_unreadable() -> None:
    inventory = read(ControlPlane(item(HALF, SubnetId="subnet-2"), item(GOOD)))
    assert [i.instance_id for i in inventory.instances] == [GOOD]
    assert inventory.unreadable == {HALF}


@pytest.mark.parametrize(
    ("state", "target"),
    [
        ("InService", "InService"),
        ("Pending", "InService"),
        ("Terminating:Wait", "Terminated"),
        ("Terminating:Proceed", "Terminated"),
        ("Standby", "Standby"),
    ],
)
def test_target_state_follows_from_the_lifecycle_state(state: str, target: str) -> None:
    assert target_state(state) == target
