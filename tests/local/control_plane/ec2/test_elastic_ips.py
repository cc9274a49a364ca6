"""Test Elastic IP addresses against EC2's rules.

AWS: "Elastic IP addresses" and "Amazon EC2 instance IP addressing" in the Amazon EC2 User Guide.
"""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Group, Stacks
from tests.local.control_plane.templates import attribute, cluster, group, reference, resource


@pytest.fixture
def asg(aws: Aws, stacks: Stacks) -> Group:
    """Create two instances in a public subnet, and an address for them."""
    outputs = {
        "Id": {"Value": attribute("AllocationId", "Own")},
        "Ip": {"Value": attribute("PublicIp", "Own")},
        "Ref": {"Value": reference("Own")},
    }
    own = resource("EC2::EIP", depends_on="Attachment", Domain="vpc", Tags=[{"Key": "of", "Value": "master"}])
    template = cluster(Group=group(2, "Public"), Own=own) | {"Outputs": outputs}
    # user data that names the address has the same effect: the address is released after the instances
    template["Resources"]["Group"]["DependsOn"].append("Own")
    stacks.create(template)
    return Group(aws=aws, name=stacks.physical_id("Group"))


def associate(aws: Aws, stacks: Stacks, instance_id: str, **arguments: Any) -> str:
    answer = aws.client("ec2").associate_address(
        AllocationId=stacks.outputs()["Id"], InstanceId=instance_id, **arguments
    )
    return str(answer["AssociationId"])


def public_address(aws: Aws, instance_id: str) -> str | None:
    reservation = aws.client("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"][0]
    address: str | None = reservation["Instances"][0].get("PublicIpAddress")
    return address


def described(aws: Aws, stacks: Stacks) -> dict[str, Any]:
    return dict(aws.client("ec2").describe_addresses(AllocationIds=[stacks.outputs()["Id"]])["Addresses"][0])


def test_elastic_ip_is_found_by_id_and_by_address(aws: Aws, stacks: Stacks, asg: Group) -> None:
    outputs, addresses = stacks.outputs(), described(aws, stacks)
    assert addresses["PublicIp"] == outputs["Ip"] == outputs["Ref"]
    assert {"Key": "of", "Value": "master"} in addresses["Tags"]
    assert "InstanceId" not in addresses or not addresses["InstanceId"]


def test_address_takes_the_place_of_the_automatic_one(aws: Aws, stacks: Stacks, asg: Group) -> None:
    one, other = sorted(asg.in_service())
    automatic = public_address(aws, one)
    association = associate(aws, stacks, one)
    assert public_address(aws, one) == stacks.outputs()["Ip"] != automatic
    addresses = described(aws, stacks)
    assert (addresses["InstanceId"], addresses["AssociationId"]) == (one, association)
    assert public_address(aws, other) not in (None, automatic, stacks.outputs()["Ip"])
    assert associate(aws, stacks, one) == association, "a second time it changes nothing"


@pytest.mark.parametrize("arguments", [{"AllowReassociation": True}, {}])
def test_address_moves_and_its_old_instance_gets_a_new_one(
    aws: Aws, stacks: Stacks, asg: Group, arguments: dict[str, bool]
) -> None:
    old, new = sorted(asg.in_service())
    before = public_address(aws, old)
    associate(aws, stacks, old)
    associate(aws, stacks, new, **arguments)
    assert public_address(aws, new) == stacks.outputs()["Ip"]
    assert public_address(aws, old) not in (None, before, stacks.outputs()["Ip"])
    assert described(aws, stacks)["InstanceId"] == new


def test_forbidden_reassociation_leaves_the_address_where_it_is(aws: Aws, stacks: Stacks, asg: Group) -> None:
    old, new = sorted(asg.in_service())
    associate(aws, stacks, old)
    with pytest.raises(ClientError, match=r"Resource\.AlreadyAssociated"):
        associate(aws, stacks, new, AllowReassociation=False)
    assert described(aws, stacks)["InstanceId"] == old


def test_disassociated_instance_gets_a_new_automatic_address(aws: Aws, stacks: Stacks, asg: Group) -> None:
    one = min(asg.in_service())
    before = public_address(aws, one)
    aws.client("ec2").disassociate_address(AssociationId=associate(aws, stacks, one))
    assert public_address(aws, one) not in (None, before, stacks.outputs()["Ip"])
    assert "AssociationId" not in described(aws, stacks)


def test_instance_has_one_address_at_a_time(aws: Aws, stacks: Stacks, asg: Group) -> None:
    ec2, one = aws.client("ec2"), min(asg.in_service())
    associate(aws, stacks, one)
    second = ec2.allocate_address(Domain="vpc")
    ec2.associate_address(AllocationId=second["AllocationId"], InstanceId=one)
    assert public_address(aws, one) == second["PublicIp"]
    assert "AssociationId" not in described(aws, stacks)
    associate(aws, stacks, one)
    ec2.release_address(AllocationId=second["AllocationId"])


def test_terminated_instance_gives_its_address_back(aws: Aws, stacks: Stacks, asg: Group) -> None:
    lost = min(asg.in_service())
    associate(aws, stacks, lost)
    aws.client("ec2").terminate_instances(InstanceIds=[lost])
    assert "AssociationId" not in described(aws, stacks)
    assert public_address(aws, lost) is None
    with pytest.raises(ClientError, match=r"InvalidInstanceID.*is not in a valid state"):
        associate(aws, stacks, lost)
    kept = min(asg.in_service())
    associate(aws, stacks, kept, AllowReassociation=False)
    assert public_address(aws, kept) == stacks.outputs()["Ip"]


def test_address_in_a_vpc_without_a_gateway_is_refused(aws: Aws, stacks: Stacks) -> None:
    template = cluster(Group=group(1))
    for name in ("Attachment", "PublicRoute", "Nat", "PrivateRoute"):
        del template["Resources"][name]
    own = resource("EC2::EIP", Domain="vpc")
    template["Resources"]["Own"] = own
    stacks.create(template | {"Outputs": {"Id": {"Value": attribute("AllocationId", "Own")}}})
    (member,) = Group(aws=aws, name=stacks.physical_id("Group")).in_service()
    with pytest.raises(ClientError, match=r"Gateway\.NotAttached"):
        associate(aws, stacks, member)


@pytest.mark.parametrize("mapped", ["an instance's automatic one", "the NAT gateway's"])
def test_gateway_stays_while_public_addresses_are_mapped(aws: Aws, stacks: Stacks, mapped: str) -> None:
    template = cluster(Group=group(1, "Public"))
    for name in ["Group"] if mapped == "the NAT gateway's" else ["Nat", "PrivateRoute", "Address"]:
        del template["Resources"][name]
    stacks.create(template)
    gateway = {"InternetGatewayId": stacks.physical_id("Gateway"), "VpcId": stacks.physical_id("Vpc")}
    with pytest.raises(ClientError, match=r"DependencyViolation.*has some mapped public address\(es\)"):
        aws.client("ec2").detach_internet_gateway(**gateway)


def test_address_in_use_survives_its_removal_from_the_stack(aws: Aws, stacks: Stacks, asg: Group) -> None:
    ec2, old = aws.client("ec2"), described(aws, stacks)["AllocationId"]
    association = associate(aws, stacks, min(asg.in_service()))
    template = cluster(Group=group(2, "Public"))
    stacks.update(template)
    assert stacks.status() == "UPDATE_COMPLETE"
    assert stacks.events("Own")[-1][0] == "DELETE_FAILED"
    template["Resources"]["Own"] = resource("EC2::EIP", depends_on="Attachment", Domain="vpc")
    stacks.update(template | {"Outputs": {"Id": {"Value": attribute("AllocationId", "Own")}}})
    assert described(aws, stacks)["AllocationId"] != old
    ec2.disassociate_address(AssociationId=association)
    ec2.release_address(AllocationId=old)


def test_stack_is_not_deleted_under_an_address_in_use(aws: Aws, stacks: Stacks) -> None:
    own = resource("EC2::EIP", Domain="vpc")
    stacks.create(cluster(Group=group(1, "Public")))
    (member,) = Group(aws=aws, name=stacks.physical_id("Group")).in_service()
    outputs = {"Outputs": {"Id": {"Value": attribute("AllocationId", "Own")}}}
    stacks.create({"Resources": {"Own": own}} | outputs, name="address")
    ec2 = aws.client("ec2")
    allocation = stacks.outputs("address")["Id"]
    association = ec2.associate_address(AllocationId=allocation, InstanceId=member)["AssociationId"]
    stacks.cloudformation.delete_stack(StackName="address")
    assert stacks.status("address") == "DELETE_FAILED"
    assert any("is in use" in reason for _, reason in stacks.events("Own", "address"))
    ec2.disassociate_address(AssociationId=association)
    stacks.cloudformation.delete_stack(StackName="address")
    with pytest.raises(ClientError, match=r"InvalidAllocationID\.NotFound"):
        ec2.describe_addresses(AllocationIds=[allocation])


def test_stack_releases_the_address_that_its_instance_has(aws: Aws, stacks: Stacks, asg: Group) -> None:
    associate(aws, stacks, min(asg.in_service()))
    stacks.cloudformation.delete_stack(StackName="stack")
    assert aws.client("ec2").describe_addresses()["Addresses"] == []


def test_release_of_an_address_in_use_is_refused(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster())
    ec2 = aws.client("ec2")
    (address,) = ec2.describe_addresses()["Addresses"]
    with pytest.raises(ClientError, match=r"InvalidIPAddress\.InUse"):
        ec2.release_address(AllocationId=address["AllocationId"])
    assert ec2.describe_addresses()["Addresses"] == [address]


def test_unused_address_can_be_released(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    made = ec2.allocate_address(Domain="vpc")
    assert not made["PublicIp"].startswith("127.")
    ec2.release_address(AllocationId=made["AllocationId"])
    assert ec2.describe_addresses()["Addresses"] == []
