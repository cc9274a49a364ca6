"""Test the creation, the rollback and the deletion of stacks."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Group, Stacks
from tests.local.control_plane.listings import everything, running
from tests.local.control_plane.templates import attribute, cluster, group, hook, launch_template, reference, resource


def whole_cluster(signals: int = 0) -> dict[str, Any]:
    table = resource(
        "DynamoDB::Table",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    return cluster(Master=group(1, "Public"), Group=group(2, signals=signals), Table=table)


def test_nothing_is_left_after_delete(aws: Aws, stacks: Stacks) -> None:
    before = everything(aws)
    stacks.create(whole_cluster())
    assert stacks.status() == "CREATE_COMPLETE"
    assert len(running(aws)) == 3
    stacks.cloudformation.delete_stack(StackName="stack")
    assert everything(aws) == before
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()


def test_nothing_is_left_after_rollback(aws: Aws, stacks: Stacks) -> None:
    before = everything(aws)
    stacks.create(whole_cluster(signals=2))
    stacks.signal("Group", "i-1", "FAILURE")
    assert stacks.status() == "ROLLBACK_COMPLETE"
    assert everything(aws) == before


@pytest.mark.parametrize(
    ("policy", "kept_by_rollback", "kept_by_delete"),
    [("Retain", True, True), ("RetainExceptOnCreate", False, True), ("Delete", False, False)],
)
def test_deletion_policy_is_honored(
    aws: Aws, stacks: Stacks, policy: str, kept_by_rollback: bool, kept_by_delete: bool
) -> None:
    logs = aws.client("logs")
    fails = cluster(Group=group(1, signals=1), Log=log_group("rolled-back", policy))
    stacks.create(fails, name="fails")
    stacks.signal("Group", "i-1", "FAILURE", name="fails")
    stacks.create({"Resources": {"Log": log_group("deleted", policy)}}, name="works")
    stacks.cloudformation.delete_stack(StackName="works")
    kept = [found["logGroupName"] for found in logs.describe_log_groups()["logGroups"]]
    for name in kept:
        logs.delete_log_group(logGroupName=name)
    assert kept == ["deleted"] * kept_by_delete + ["rolled-back"] * kept_by_rollback


def log_group(name: str, policy: str) -> dict[str, Any]:
    return resource("Logs::LogGroup", LogGroupName=name) | {"DeletionPolicy": policy}


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        ({"KeyName": "nobodys"}, "The key pair 'nobodys' does not exist"),
        ({"InstanceType": "c5.99999xlarge"}, "Invalid value 'c5.99999xlarge' for InstanceType."),
        ({"ImageId": "ami-00000000000000000"}, "The image id '[ami-00000000000000000]' does not exist"),
    ],
)
@pytest.mark.parametrize("size", [0, 1])
def test_template_that_cannot_be_launched_rolls_back_with_the_reason(
    aws: Aws, stacks: Stacks, size: int, data: dict[str, str], refusal: str
) -> None:
    template = cluster(Group=group(size))
    template["Resources"]["Template"] = launch_template(**data)
    stacks.create(template)
    assert stacks.status() == "ROLLBACK_COMPLETE"
    reason = f"You must use a valid fully-formed launch template. {refusal}"
    assert ("CREATE_FAILED", reason) in stacks.events("Group")
    assert running(aws) == []


def test_stack_with_a_circular_dependency_is_refused(stacks: Stacks) -> None:
    one = resource("Logs::LogGroup", LogGroupName=reference("Two"))
    two = resource("Logs::LogGroup", LogGroupName=reference("One"))
    with pytest.raises(ClientError, match="Circular dependency between resources"):
        stacks.create({"Resources": {"One": one, "Two": two}})


def test_refused_deletion_can_be_repeated(aws: Aws, stacks: Stacks) -> None:
    ec2 = aws.client("ec2")
    stacks.create(cluster())
    subnet = stacks.physical_id("Private")
    vpc = stacks.physical_id("Vpc")
    extra = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.2.0/24")["Subnet"]["SubnetId"]
    stacks.cloudformation.delete_stack(StackName="stack")
    assert stacks.status() == "DELETE_FAILED"
    assert [status for status, _ in stacks.events("Vpc")][-1] == "DELETE_FAILED"
    assert subnet not in [found["SubnetId"] for found in ec2.describe_subnets()["Subnets"]]
    ec2.delete_subnet(SubnetId=extra)
    stacks.cloudformation.delete_stack(StackName="stack")
    assert vpc not in [found["VpcId"] for found in ec2.describe_vpcs()["Vpcs"]]


def test_delete_is_refused_during_an_update(aws: Aws, stacks: Stacks) -> None:
    whole = cluster(Drained=group(1, LifecycleHookSpecificationList=[hook(3600)]))
    stacks.create(whole)
    leaver = Group(aws=aws, name=stacks.physical_id("Drained"))
    stacks.update(cluster())
    refusal = r"Stack \[stack\] cannot be deleted while in status UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
    with pytest.raises(ClientError, match=refusal):
        stacks.cloudformation.delete_stack(StackName="stack")
    [waiting] = leaver.waiting()
    leaver.complete(waiting)
    assert stacks.status() == "UPDATE_COMPLETE"


def test_resources_follow_dependency_order(stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, signals=1)))
    stacks.signal("Group", "i-1", "FAILURE")
    events = stacks.cloudformation.describe_stack_events(StackName="stack")["StackEvents"][::-1]
    order = [(event["LogicalResourceId"], event["ResourceStatus"]) for event in events]
    assert order.index(("Nat", "CREATE_COMPLETE")) < order.index(("PrivateRoute", "CREATE_IN_PROGRESS"))
    assert order.index(("PrivateRoute", "DELETE_COMPLETE")) < order.index(("Nat", "DELETE_IN_PROGRESS"))
    times = [event["Timestamp"] for event in events]
    assert times == sorted(set(times)), "the CDK CLI sorts events by time alone"


def test_resources_carry_the_tags_of_template_stack_and_service(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(), Tags=[{"Key": "team", "Value": "vision"}])
    vpc = aws.client("ec2").describe_vpcs(VpcIds=[stacks.physical_id("Vpc")])["Vpcs"][0]
    tags = {tag["Key"]: tag["Value"] for tag in vpc["Tags"]}
    assert tags["Name"] == "network"
    assert tags["team"] == "vision"
    assert tags["aws:cloudformation:logical-id"] == "Vpc"


def test_each_resource_has_a_status_of_its_own(stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, signals=1)))
    answer = stacks.cloudformation.describe_stack_resources(StackName="stack")["StackResources"]
    statuses = {entry["LogicalResourceId"]: entry["ResourceStatus"] for entry in answer}
    assert statuses["Vpc"] == "CREATE_COMPLETE"
    assert statuses["Group"] == "CREATE_IN_PROGRESS"


def test_resources_of_a_stack_can_be_listed(stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, signals=1), Late=resource("Logs::LogGroup", depends_on="Group")))
    listed = stacks.cloudformation.list_stack_resources(StackName="stack")["StackResourceSummaries"]
    names = {entry["LogicalResourceId"] for entry in listed}
    assert {"Vpc", "Group"} <= names
    assert "Late" not in names


def test_outputs_resolve_references(stacks: Stacks) -> None:
    outputs = {"Role": {"Value": attribute("RoleId", "Role")}}
    stacks.create(cluster() | {"Outputs": outputs})
    role = stacks.aws.client("iam").get_role(RoleName=stacks.physical_id("Role"))["Role"]
    assert stacks.outputs() == {"Role": role["RoleId"]}
