"""Test that stacks are created and updated by change sets."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.ec2.images import FAMILIES, image_id, parameter_name
from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import cluster, group, reference

OUTPUTS = {"Outputs": {"Name": {"Value": reference("Group")}}}


def execute(stacks: Stacks, template: dict[str, Any], kind: str, **arguments: Any) -> None:
    """Apply a change set, as `cdk deploy` does by default."""
    cloudformation = stacks.cloudformation
    named = {"StackName": "stack", "ChangeSetName": "cdk-deploy-change-set"}
    body = json.dumps(template)
    cloudformation.create_change_set(TemplateBody=body, ChangeSetType=kind, **named, **arguments)
    assert cloudformation.describe_change_set(**named)["Status"] == "CREATE_COMPLETE"
    cloudformation.execute_change_set(**named)
    cloudformation.delete_change_set(**named)


def test_stack_made_by_a_change_set_waits_for_its_signals(stacks: Stacks) -> None:
    stacks.names.append("stack")
    execute(stacks, {"Description": "ours"} | cluster(Group=group(1, signals=1)) | OUTPUTS, "CREATE")
    assert stacks.status() == "CREATE_IN_PROGRESS"
    [listed] = stacks.cloudformation.describe_stacks()["Stacks"]
    assert listed["Description"] == "ours"
    stacks.signal("Group", "i-1")
    assert stacks.status() == "CREATE_COMPLETE"
    assert stacks.outputs() == {"Name": stacks.physical_id("Group")}
    assert stacks.events("Vpc")[-1][0] == "CREATE_COMPLETE"


def test_change_set_updates_in_place(aws: Aws, stacks: Stacks) -> None:
    stacks.names.append("stack")
    execute(stacks, cluster(Group=group(1)) | OUTPUTS, "CREATE")
    name = stacks.physical_id("Group")
    execute(stacks, cluster(Group=group(2)) | OUTPUTS, "UPDATE")
    assert stacks.status() == "UPDATE_COMPLETE"
    assert stacks.outputs() == {"Name": name}
    (described,) = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert len(described["Instances"]) == 2


def test_previous_value_of_an_ssm_parameter_is_its_name(stacks: Stacks) -> None:
    stacks.names.append("stack")
    name = parameter_name(FAMILIES[0])
    image = {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": name}
    template = {"Parameters": {"Image": image}, "Outputs": {"Image": {"Value": reference("Image")}}}
    execute(stacks, cluster() | template, "CREATE")
    kept = [{"ParameterKey": "Image", "UsePreviousValue": True}]
    execute(stacks, cluster(Group=group(1)) | template, "UPDATE", Parameters=kept)
    assert stacks.status() == "UPDATE_COMPLETE"
    assert stacks.outputs() == {"Image": image_id(FAMILIES[0])}


def test_stack_from_a_change_set_is_deleted_completely(aws: Aws, stacks: Stacks) -> None:
    before = aws.client("ec2").describe_vpcs()["Vpcs"]
    execute(stacks, cluster(), "CREATE")
    assert aws.client("ec2").describe_vpcs()["Vpcs"] != before
    stacks.cloudformation.delete_stack(StackName="stack")
    assert aws.client("ec2").describe_vpcs()["Vpcs"] == before


def test_change_sets_of_one_name_belong_to_their_stacks(stacks: Stacks) -> None:
    named = {"ChangeSetName": "cdk-deploy-change-set", "ChangeSetType": "CREATE"}
    for stack in ("one", "two"):
        stacks.names.append(stack)
        stacks.cloudformation.create_change_set(StackName=stack, TemplateBody=json.dumps(cluster()), **named)
    change_set = stacks.cloudformation.describe_change_set(StackName="one", ChangeSetName="cdk-deploy-change-set")
    assert change_set["StackName"] == "one"
    for stack in ("one", "two"):
        stacks.cloudformation.delete_change_set(StackName=stack, ChangeSetName="cdk-deploy-change-set")


def test_change_set_that_nobody_executes_leaves_one_stack_for_the_next(stacks: Stacks) -> None:
    stacks.names.append("stack")
    announced = stacks.cloudformation.create_change_set(
        StackName="stack", ChangeSetName="prepared", ChangeSetType="CREATE", TemplateBody=json.dumps(cluster())
    )
    assert stacks.status() == "REVIEW_IN_PROGRESS"
    execute(stacks, cluster(), "CREATE")
    [listed] = stacks.cloudformation.describe_stacks()["Stacks"]
    assert (listed["StackId"], listed["StackStatus"]) == (announced["StackId"], "CREATE_COMPLETE")
    with pytest.raises(ClientError, match=r"Stack \[stack\] already exists and cannot be created again"):
        execute(stacks, cluster(), "CREATE")


def test_missing_change_set_can_be_deleted_but_not_described(stacks: Stacks) -> None:
    stacks.create(cluster())
    named = {"StackName": "stack", "ChangeSetName": "nobodys"}
    stacks.cloudformation.delete_change_set(**named)
    with pytest.raises(ClientError, match=r"ChangeSetNotFound.*\[nobodys\] does not exist"):
        stacks.cloudformation.describe_change_set(**named)


def test_change_sets_of_deleted_stacks_stay_deleted(stacks: Stacks) -> None:
    named = {"StackName": "stack", "ChangeSetName": "cdk-deploy-change-set"}
    for _ in range(2):
        # When the CDK deletes a stack, it leaves the change set that it executed.
        stacks.cloudformation.create_change_set(TemplateBody=json.dumps(cluster()), ChangeSetType="CREATE", **named)
        stacks.cloudformation.execute_change_set(**named)
        stacks.cloudformation.delete_stack(StackName="stack")
    stacks.cloudformation.delete_change_set(**named)
    with pytest.raises(ClientError, match="does not exist"):
        stacks.cloudformation.describe_change_set(**named)
