"""Test that instances of groups follow their launch template."""

import base64
import ipaddress
from typing import Any

import pytest

from local.control_plane.ec2.images import FAMILIES, image_id
from local.network.vpc_network import mac_address
from local.node.inventory import read_inventory
from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import USER_DATA, attribute, cluster, group, launch_template


def instances(aws: Aws, *states: str) -> list[dict[str, Any]]:
    filters = [{"Name": "instance-state-name", "Values": states or ("running",)}]
    reservations = aws.client("ec2").describe_instances(Filters=filters)["Reservations"]
    return [instance for reservation in reservations for instance in reservation["Instances"]]


def tags(described: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in described["Tags"]}


def test_instance_follows_its_launch_template(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    (instance,) = instances(aws)
    assert instance["InstanceType"] == "c5.large"
    assert instance["ImageId"] == image_id(FAMILIES[0])
    assert [g["GroupId"] for g in instance["SecurityGroups"]] == [stacks.physical_id("Security")]
    profile = aws.client("iam").get_instance_profile(InstanceProfileName=stacks.physical_id("Profile"))
    assert instance["IamInstanceProfile"]["Arn"] == profile["InstanceProfile"]["Arn"]
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["MetadataOptions"]["HttpPutResponseHopLimit"] == 2
    assert tags(instance)["Name"] == "node"
    assert tags(instance)["cluster"] == "test"
    assert tags(instance)["aws:autoscaling:groupName"] == stacks.physical_id("Group")


def test_user_data_reaches_the_instance_unchanged(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    (instance,) = instances(aws)
    answer = aws.client("ec2").describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
    assert base64.b64decode(answer["UserData"]["Value"]).decode() == USER_DATA


def test_root_volume_is_the_templates_only(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    (instance,) = instances(aws)
    assert [mapping["DeviceName"] for mapping in instance["BlockDeviceMappings"]] == ["/dev/sda1"]
    (volume,) = aws.client("ec2").describe_volumes()["Volumes"]
    assert (volume["Size"], volume["VolumeType"], volume["Encrypted"]) == (120, "gp3", True)
    assert tags(volume) == {"Name": "disk"}


def test_only_instances_in_public_subnets_have_public_addresses(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Outside=group(1, "Public"), Inside=group(2, "Private")))
    public = {i["SubnetId"]: i.get("PublicIpAddress") for i in instances(aws)}
    assert public[stacks.physical_id("Public")]
    assert public[stacks.physical_id("Private")] is None


def test_network_interface_of_the_template_decides(aws: Aws, stacks: Stacks) -> None:
    interface = {
        "DeviceIndex": 0,
        "AssociatePublicIpAddress": False,
        "Groups": [attribute("GroupId", "Security")],
    }
    template = cluster(Group=group(1, "Public"))
    template["Resources"]["Template"] = launch_template(NetworkInterfaces=[interface], SecurityGroupIds=[])
    stacks.create(template)
    (instance,) = instances(aws)
    assert "PublicIpAddress" not in instance
    assert [g["GroupId"] for g in instance["SecurityGroups"]] == [stacks.physical_id("Security")]


def described_interfaces(instance: dict[str, Any]) -> set[tuple[str, int, int]]:
    interfaces = ((interface["InterfaceType"], interface["Attachment"]) for interface in instance["NetworkInterfaces"])
    return {(kind, attachment["NetworkCardIndex"], attachment["DeviceIndex"]) for kind, attachment in interfaces}


def test_several_interfaces_take_one_private_address_and_no_public_one(aws: Aws, stacks: Stacks) -> None:
    groups = [attribute("GroupId", "Security")]
    interfaces = [
        {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface", "Groups": groups},
        {"NetworkCardIndex": 0, "DeviceIndex": 1, "InterfaceType": "efa-only", "Groups": groups},
        {"NetworkCardIndex": 1, "DeviceIndex": 0, "InterfaceType": "efa-only", "Groups": groups},
    ]
    template = cluster(Group=group(1, "Public"))
    template["Resources"]["Template"] = launch_template(
        InstanceType="g6e.24xlarge", NetworkInterfaces=interfaces, SecurityGroupIds=[]
    )
    stacks.create(template)
    (instance,) = instances(aws)
    assert "PublicIpAddress" not in instance
    assert [g["GroupId"] for g in instance["SecurityGroups"]] == [stacks.physical_id("Security")]
    assert described_interfaces(instance) == {("interface", 0, 0), ("efa-only", 0, 1), ("efa-only", 1, 0)}
    assert {interface["Groups"][0]["GroupId"] for interface in instance["NetworkInterfaces"]} == {
        stacks.physical_id("Security")
    }
    (node,) = read_inventory(aws.client("ec2"), aws.client("autoscaling")).instances
    assert [(interface.interface_type, interface.address) for interface in node.interfaces] == [
        ("interface", instance["PrivateIpAddress"]), ("efa-only", None), ("efa-only", None)
    ]  # fmt: skip
    aws.client("ec2").terminate_instances(InstanceIds=[instance["InstanceId"]])
    left = aws.client("ec2").describe_network_interfaces()["NetworkInterfaces"]
    assert not {interface["NetworkInterfaceId"] for interface in left} & {
        interface.interface_id for interface in node.interfaces
    }


def test_only_interface_has_the_templates_type_and_the_nodes_mac(aws: Aws, stacks: Stacks) -> None:
    interface = {"NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "efa"}
    template = cluster(Group=group(1, "Public"))
    groups = [attribute("GroupId", "Security")]
    template["Resources"]["Template"] = launch_template(
        InstanceType="g5.8xlarge", NetworkInterfaces=[interface | {"Groups": groups}], SecurityGroupIds=[]
    )
    stacks.create(template)
    (instance,) = instances(aws)
    assert described_interfaces(instance) == {("efa", 0, 0)}
    assert instance["PublicIpAddress"]
    (interface,) = instance["NetworkInterfaces"]
    assert interface["MacAddress"] == mac_address(instance["PrivateIpAddress"])


@pytest.mark.parametrize("placement", [{"GroupName": "close-together", "Tenancy": "dedicated"}, {}])
def test_instance_has_the_placement_of_its_launch_template(aws: Aws, stacks: Stacks, placement: dict[str, str]) -> None:
    template = cluster(Group=group(1))
    template["Resources"]["Template"] = launch_template(Placement=placement)
    stacks.create(template)
    (instance,) = instances(aws)
    described = {key: instance["Placement"].get(key) or None for key in ("GroupName", "Tenancy")}
    assert described == {"GroupName": None, "Tenancy": "default"} | placement


def test_instances_are_spot_instances_if_the_template_requests_it(aws: Aws, stacks: Stacks) -> None:
    template = cluster(Group=group(1))
    template["Resources"]["Template"] = launch_template(InstanceMarketOptions={"MarketType": "spot"})
    stacks.create(template)
    (instance,) = instances(aws)
    assert instance["InstanceLifecycle"] == "spot"
    (node,) = read_inventory(aws.client("ec2"), aws.client("autoscaling")).instances
    assert node.lifecycle == "spot"


def test_private_addresses_are_unique_and_not_those_that_aws_reserves(aws: Aws, stacks: Stacks) -> None:
    template = cluster(Group=group(8))
    template["Resources"]["Private"]["Properties"]["CidrBlock"] = "10.0.1.0/28"
    stacks.create(template)
    addresses = {ipaddress.ip_address(i["PrivateIpAddress"]) for i in instances(aws)}
    usable = [*ipaddress.ip_network("10.0.1.0/28")][4:-1]
    assert len(addresses) == 8
    assert addresses <= {*usable}


@pytest.mark.parametrize("how", ["ec2", "autoscaling"])
def test_terminated_instance_has_no_address_and_is_replaced(aws: Aws, stacks: Stacks, how: str) -> None:
    stacks.create(cluster(Group=group(2)))
    lost, kept = instances(aws)
    if how == "ec2":
        aws.client("ec2").terminate_instances(InstanceIds=[lost["InstanceId"]])
    else:
        aws.client("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=lost["InstanceId"], ShouldDecrementDesiredCapacity=False
        )
    (gone,) = aws.client("ec2").describe_instances(InstanceIds=[lost["InstanceId"]])["Reservations"]
    assert gone["Instances"][0]["State"]["Name"] == "terminated"
    assert "PrivateIpAddress" not in gone["Instances"][0]
    now = {i["InstanceId"]: i["PrivateIpAddress"] for i in instances(aws)}
    assert len(now) == 2
    assert kept["InstanceId"] in now
    assert lost["InstanceId"] not in now
    assert lost["PrivateIpAddress"] not in now.values()


def test_groups_are_found_by_tag(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1)))
    autoscaling = aws.client("autoscaling")

    def names(value: str) -> list[str]:
        filters = [{"Name": "tag:cluster", "Values": [value]}]
        answer = autoscaling.describe_auto_scaling_groups(Filters=filters)["AutoScalingGroups"]
        return [group["AutoScalingGroupName"] for group in answer]

    assert names("test") == [stacks.physical_id("Group")]
    assert names("other") == []
