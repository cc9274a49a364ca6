"""Test updates that wait for the creation policy of a new resource."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Stacks, wait_for_server
from tests.local.control_plane.listings import everything, running
from tests.local.control_plane.templates import cluster, group, hook, launch_template, resource


def template(*, size: int = 1, guest: dict[str, Any] | None = None, **resources: dict[str, Any]) -> dict[str, Any]:
    """Return a template with a group, and with a guest group if given; its output is the size."""
    groups = {"Group": group(size)} | ({"Guest": guest} if guest else {}) | resources
    return cluster(**groups) | {"Outputs": {"Size": {"Value": str(size)}}}


def begin_update(stacks: Stacks, *, size: int = 1, timeout: str = "PT15M", **resources: dict[str, Any]) -> None:
    """Create a stack, then add a group to it that waits for a signal."""
    stacks.create(template())
    stacks.update(template(size=size, guest=group(1, signals=1, timeout=timeout), **resources))


def sizes(aws: Aws) -> list[int]:
    groups = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return sorted(described["DesiredCapacity"] for described in groups)


def names_of_logs(aws: Aws) -> list[str]:
    return [found["logGroupName"] for found in aws.client("logs").describe_log_groups()["logGroups"]]


def test_update_waits_for_the_signals_of_a_new_resource(aws: Aws, stacks: Stacks) -> None:
    late = resource("Logs::LogGroup", depends_on="Guest", LogGroupName="late")
    early = resource("Logs::LogGroup", LogGroupName="early")
    begin_update(stacks, size=2, Late=late, Early=early)
    assert stacks.status() == "UPDATE_IN_PROGRESS"
    assert sizes(aws) == [1, 2], "the group does not depend on the guest"
    assert names_of_logs(aws) == ["early"]
    assert stacks.outputs() == {"Size": "1"}
    stacks.signal("Guest", "i-1")
    assert stacks.status() == "UPDATE_COMPLETE"
    assert [status for status, _ in stacks.events("Guest")] == ["CREATE_IN_PROGRESS"] * 2 + ["CREATE_COMPLETE"]
    assert names_of_logs(aws) == ["early", "late"]
    assert stacks.outputs() == {"Size": "2"}
    assert [status for status, _ in stacks.events("Group")].count("UPDATE_COMPLETE") == 1


def test_change_behind_a_new_resource_comes_after_its_signals(aws: Aws, stacks: Stacks) -> None:
    stacks.create(template())
    behind = group(2) | {"DependsOn": "Guest"}
    stacks.update(template(guest=group(1, signals=1), Group=behind))
    assert sizes(aws) == [1, 1]
    stacks.signal("Guest", "i-1")
    assert sizes(aws) == [1, 2]
    assert stacks.status() == "UPDATE_COMPLETE"


def test_removed_resources_are_deleted_after_the_signals(aws: Aws, stacks: Stacks) -> None:
    stacks.create(template(Log=resource("Logs::LogGroup", LogGroupName="removed")))
    stacks.update(template(guest=group(1, signals=1)))
    assert names_of_logs(aws) == ["removed"]
    stacks.signal("Guest", "i-1")
    assert names_of_logs(aws) == []


def test_failure_rolls_the_update_back(aws: Aws, stacks: Stacks) -> None:
    stacks.create(template())
    before = {call: len(items) for call, items in everything(aws).items()}
    changed = template(size=2, guest=group(1, signals=1))
    changed["Resources"]["Template"] = launch_template(InstanceType="m5.large")
    stacks.update(changed)
    assert len(running(aws)) == 3
    stacks.signal("Guest", "i-1 no route", "FAILURE")
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert stacks.outputs() == {"Size": "1"}
    assert {call: len(items) for call, items in everything(aws).items()} == before
    assert ("CREATE_FAILED", "Received FAILURE signal with UniqueId i-1 no route") in stacks.events("Guest")
    assert stacks.events("Guest")[-1][0] == "DELETE_COMPLETE"
    why = "The following resource(s) failed to create: [Guest]."
    assert ("UPDATE_ROLLBACK_IN_PROGRESS", why) in stacks.events("stack")
    stacks.update(template(guest=group(1, signals=1)))
    stacks.signal("Guest", "i-1")
    assert stacks.status() == "UPDATE_COMPLETE"


def test_refused_creation_is_an_event_of_its_resource(stacks: Stacks) -> None:
    stacks.create(template())
    where = {"RouteTableId": "rtb-0", "SubnetId": "subnet-0"}
    stacks.update(template(Refused=resource("EC2::SubnetRouteTableAssociation", **where)))
    assert stacks.status() == "UPDATE_ROLLBACK_COMPLETE"
    [(_, reason)] = [event for event in stacks.events("Refused") if event[0] == "CREATE_FAILED"]
    assert "rtb-0" in reason
    why = "The following resource(s) failed to create: [Refused]."
    assert ("UPDATE_ROLLBACK_IN_PROGRESS", why) in stacks.events("stack")


def test_rollback_restores_the_tags_and_the_role(aws: Aws, stacks: Stacks) -> None:
    def described() -> tuple[list[Any], str]:
        stack = stacks.cloudformation.describe_stacks(StackName="stack")["Stacks"][0]
        return stack["Tags"], stack["RoleARN"]

    role, other = (f"arn:aws:iam::123456789012:role/{name}" for name in ("first", "second"))
    team = [{"Key": "team", "Value": "speech"}]
    stacks.create(template(), Tags=team, RoleARN=role)
    changed = template(size=2, guest=group(1, signals=1))
    stacks.update(changed, Tags=[{"Key": "owner", "Value": "me"}], RoleARN=other)
    assert described() == ([{"Key": "owner", "Value": "me"}], other)
    stacks.signal("Guest", "i-1", "FAILURE")
    assert described() == (team, role)
    stacks.update(template(Mine=resource("EC2::EIP", Domain="vpc")))
    assert described() == (team, role)
    made = {"Name": "public-ip", "Values": [stacks.physical_id("Mine")]}
    [address] = aws.client("ec2").describe_addresses(Filters=[made])["Addresses"]
    assert {tag["Key"] for tag in address["Tags"]} & {"team", "owner"} == {"team"}


def test_missing_signals_roll_the_update_back_after_the_timeout(stacks: Stacks) -> None:
    begin_update(stacks, size=2, timeout="PT1S")
    wait_for_server(lambda: stacks.status() == "UPDATE_ROLLBACK_COMPLETE", "the rollback")
    reason = "Failed to receive 1 resource signal(s) within the specified duration"
    assert ("CREATE_FAILED", reason) in stacks.events("Guest")


@pytest.mark.parametrize(("fails", "shown"), [(False, "2"), (True, "1")], ids=["update", "rollback"])
def test_outputs_are_complete_before_the_cleanup(stacks: Stacks, fails: bool, shown: str) -> None:
    drained = group(1, LifecycleHookSpecificationList=[hook(3600)])
    if fails:
        stacks.create(template())
        stacks.update(template(size=2, guest=group(1, signals=1), Drained=drained))
        stacks.signal("Guest", "i-1", "FAILURE")
    else:
        stacks.create(template(Drained=drained))
        stacks.update(template(size=2))
    assert stacks.status().endswith("_COMPLETE_CLEANUP_IN_PROGRESS")
    assert stacks.outputs() == {"Size": shown}


@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE"])
def test_signal_to_a_complete_resource_is_refused_during_an_update(stacks: Stacks, status: str) -> None:
    begin_update(stacks)
    with pytest.raises(ClientError, match=r"ValidationError.*Group is in CREATE_COMPLETE state and cannot be signaled"):
        stacks.signal("Group", "i-2", status)
    assert stacks.status() == "UPDATE_IN_PROGRESS"
    stacks.signal("Guest", "i-1")


def test_second_change_is_refused_during_an_update(stacks: Stacks) -> None:
    stacks.create(template())
    changed = {"TemplateBody": json.dumps(template(size=3)), "StackName": "stack", "ChangeSetType": "UPDATE"}
    stacks.cloudformation.create_change_set(ChangeSetName="earlier", **changed)
    stacks.update(template(guest=group(1, signals=1)))
    refusal = r"Stack:\S+ is in UPDATE_IN_PROGRESS state and can not be updated\."
    with pytest.raises(ClientError, match=refusal):
        stacks.update(template(size=3))
    with pytest.raises(ClientError, match=rf"CreateChangeSet operation: {refusal}"):
        stacks.cloudformation.create_change_set(ChangeSetName="another", **changed)
    with pytest.raises(ClientError, match=refusal):
        stacks.cloudformation.execute_change_set(StackName="stack", ChangeSetName="earlier")
    stacks.cloudformation.delete_change_set(StackName="stack", ChangeSetName="earlier")
    with pytest.raises(ClientError, match="cannot be deleted while in status UPDATE_IN_PROGRESS"):
        stacks.cloudformation.delete_stack(StackName="stack")
    stacks.signal("Guest", "i-1")
    assert stacks.status() == "UPDATE_COMPLETE"
    assert stacks.outputs() == {"Size": "1"}
