"""Test how groups launch, terminate and replace their members, with lifecycle hooks."""

import time

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Group, Stacks, state, wait_for_server
from tests.local.control_plane.templates import cluster, group, hook, resource

LONG_S = 600
"""Heartbeat timeout in seconds that outlasts the test."""


def hooked(stacks: Stacks, size: int, *hooks: dict[str, object]) -> Group:
    stacks.create(cluster(Group=group(size, LifecycleHookSpecificationList=[*hooks] or [hook(LONG_S)])))
    return Group(aws=stacks.aws, name=stacks.physical_id("Group"))


def test_scaled_in_instance_runs_on_until_its_hook_is_completed(aws: Aws, stacks: Stacks) -> None:
    members = hooked(stacks, 2)
    stacks.update(cluster(Group=group(1, LifecycleHookSpecificationList=[hook(LONG_S)])))
    assert stacks.status() == "UPDATE_COMPLETE"
    (leaving,) = members.waiting()
    (kept,) = members.in_service()
    assert state(aws, leaving) == "running"
    members.complete(leaving)
    assert state(aws, leaving) == "terminated"
    assert members.members() == {kept: "InService"}


def test_replacement_does_not_wait_for_the_hook(aws: Aws, stacks: Stacks) -> None:
    members = hooked(stacks, 2)
    before = members.in_service()
    ended = min(before)
    members.terminate(ended)
    assert members.waiting() == {ended}
    assert len(members.in_service()) == 2
    assert members.in_service() & before == before - {ended}
    assert members.described()["DesiredCapacity"] == 2
    members.complete(ended)
    assert len(members.members()) == 2


def test_terminating_with_decrement_shrinks_the_group_once(stacks: Stacks) -> None:
    members = hooked(stacks, 3)
    ended = min(members.in_service())
    for _ in range(2):
        members.terminate(ended, decrement=True)
    assert members.described()["DesiredCapacity"] == 2
    assert len(members.in_service()) == 2


def test_instances_that_leave_are_not_chosen_again(stacks: Stacks) -> None:
    members = hooked(stacks, 3)
    for size in (2, 1):
        stacks.update(cluster(Group=group(size, LifecycleHookSpecificationList=[hook(LONG_S)])))
    assert len(members.waiting()) == 2
    assert len(members.in_service()) == 1


def test_hook_times_out(aws: Aws, stacks: Stacks) -> None:
    members = hooked(stacks, 1, hook(1))
    (ended,) = members.in_service()
    members.terminate(ended)
    wait_for_server(lambda: ended not in members.members(), "the hook's heartbeat to time out")
    assert state(aws, ended) == "terminated"


def set_timeout(members: Group, timeout_s: int) -> None:
    """Change the hook; the change holds for the timers that start from now on."""
    members.autoscaling.put_lifecycle_hook(
        AutoScalingGroupName=members.name,
        LifecycleHookName="drain",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=timeout_s,
    )


def beat(members: Group, instance_id: str) -> None:
    members.autoscaling.record_lifecycle_action_heartbeat(
        AutoScalingGroupName=members.name, LifecycleHookName="drain", InstanceId=instance_id
    )


def test_heartbeat_restarts_the_timeout(stacks: Stacks) -> None:
    members = hooked(stacks, 1)
    for timeout_s in (2, 15):
        set_timeout(members, timeout_s)
        (ended,) = members.in_service()
        members.terminate(ended)
        set_timeout(members, LONG_S)
        try:
            beat(members, ended)
        except ClientError:  # this machine was too slow, and the instance has gone
            continue
        break
    time.sleep(timeout_s + 1)
    assert members.waiting() == {ended}
    set_timeout(members, 1)
    beat(members, ended)
    wait_for_server(lambda: not members.waiting(), "the hook's heartbeat to time out")


@pytest.mark.parametrize("how", ["terminate_instances", "stop_instances"])
def test_instance_ended_by_hand_is_replaced_without_hooks(aws: Aws, stacks: Stacks, how: str) -> None:
    members = hooked(stacks, 2)
    lost = min(members.in_service())
    getattr(aws.client("ec2"), how)(InstanceIds=[lost])
    assert state(aws, lost) == "terminated"
    assert lost not in members.members()
    assert len(members.in_service()) == 2
    answer = members.autoscaling.describe_scaling_activities(AutoScalingGroupName=members.name)["Activities"]
    cause = next(a["Cause"] for a in answer if a["Description"] == f"Terminating EC2 instance: {lost}")
    assert cause.endswith("in response to an EC2 health check indicating it has been terminated or stopped.")


def test_instance_that_ends_while_it_waits_is_replaced_once(aws: Aws, stacks: Stacks) -> None:
    members = hooked(stacks, 1)
    (ended,) = members.in_service()
    members.terminate(ended)
    (replacement,) = members.in_service()
    aws.client("ec2").terminate_instances(InstanceIds=[ended])
    assert members.members() == {replacement: "InService"}
    with pytest.raises(ClientError, match=f"No active Lifecycle Action found with instance ID {ended}"):
        members.complete(ended)


def test_completing_without_an_action_is_refused(stacks: Stacks) -> None:
    members = hooked(stacks, 1)
    (member,) = members.in_service()
    with pytest.raises(ClientError, match=r"ValidationError.*No active Lifecycle Action found with instance ID"):
        members.complete(member)
    members.terminate(member)
    with pytest.raises(ClientError, match="No active Lifecycle Action found"):
        members.complete(member, hook="other")
    with pytest.raises(ClientError, match="LifecycleActionResult must be one of CONTINUE, ABANDON, got STOP"):
        members.complete(member, result="STOP")


def test_every_hook_is_waited_for_unless_one_abandons(stacks: Stacks) -> None:
    members = hooked(stacks, 2, hook(LONG_S, "drain"), hook(LONG_S, "logs"))
    patient, hasty = sorted(members.in_service())
    members.terminate(patient)
    members.complete(patient)
    assert members.waiting() == {patient}
    members.complete(patient, hook="logs")
    assert members.waiting() == set()
    members.terminate(hasty)
    members.complete(hasty, result="ABANDON")
    assert members.waiting() == set()


def test_deleted_hook_releases_waiting_instances(aws: Aws, stacks: Stacks) -> None:
    members = hooked(stacks, 1)
    (ended,) = members.in_service()
    members.terminate(ended)
    members.autoscaling.delete_lifecycle_hook(AutoScalingGroupName=members.name, LifecycleHookName="drain")
    assert state(aws, ended) == "terminated"


def test_hooks_follow_the_groups_template(stacks: Stacks) -> None:
    def hooks() -> dict[str, int]:
        answer = members.autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=members.name)["LifecycleHooks"]
        assert not any("RoleARN" in described or "NotificationTargetARN" in described for described in answer)
        return {described["LifecycleHookName"]: described["HeartbeatTimeout"] for described in answer}

    members = hooked(stacks, 1, hook(60, "drain"))
    assert hooks() == {"drain": 60}
    members.autoscaling.put_lifecycle_hook(
        AutoScalingGroupName=members.name,
        LifecycleHookName="drain",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=70,
    )
    assert hooks() == {"drain": 70}
    stacks.update(cluster(Group=group(1, LifecycleHookSpecificationList=[hook(90, "logs")])))
    assert hooks() == {"logs": 90}
    stacks.update(cluster(Group=group(1)))
    assert hooks() == {}


def test_activity_of_a_waiting_instance_is_not_over(stacks: Stacks) -> None:
    members = hooked(stacks, 1)
    (ended,) = members.in_service()
    members.terminate(ended)
    launched, terminating, _ = members.activities()
    assert launched[1].startswith("Launching a new EC2 instance: i-")
    assert terminating == ("MidLifecycleAction", f"Terminating EC2 instance: {ended}")
    members.complete(ended)
    assert members.activities()[1] == ("Successful", f"Terminating EC2 instance: {ended}")


def test_stack_deletion_waits_only_for_the_groups_dependencies(aws: Aws, stacks: Stacks) -> None:
    log = {"Log": resource("Logs::LogGroup", LogGroupName="early")}
    stacks.create(cluster(Group=group(2, LifecycleHookSpecificationList=[hook(LONG_S)]), **log))
    members = Group(aws=aws, name=stacks.physical_id("Group"))
    subnet = stacks.physical_id("Private")
    for _ in range(2):
        stacks.cloudformation.delete_stack(StackName="stack")
        assert stacks.status() == "DELETE_IN_PROGRESS"
    assert [status for status, _ in stacks.events("stack")].count("DELETE_IN_PROGRESS") == 1
    assert aws.client("logs").describe_log_groups()["logGroups"] == []
    first, last = sorted(members.waiting())
    members.complete(first)
    assert stacks.status() == "DELETE_IN_PROGRESS"
    assert subnet in [described["SubnetId"] for described in aws.client("ec2").describe_subnets()["Subnets"]]
    members.complete(last)
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()
    assert subnet not in [described["SubnetId"] for described in aws.client("ec2").describe_subnets()["Subnets"]]


def test_deletion_of_a_stack_does_not_wait_for_the_dead(aws: Aws, stacks: Stacks) -> None:
    members = hooked(stacks, 1)
    stacks.cloudformation.delete_stack(StackName="stack")
    aws.client("ec2").terminate_instances(InstanceIds=[*members.waiting()])
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()


def test_rollback_waits_and_can_be_overtaken_by_a_deletion(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, signals=1, LifecycleHookSpecificationList=[hook(LONG_S)])))
    members = Group(aws=aws, name=stacks.physical_id("Group"))
    stacks.signal("Group", "i-1", "FAILURE")
    assert stacks.status() == "ROLLBACK_IN_PROGRESS"
    stacks.cloudformation.delete_stack(StackName="stack")
    assert stacks.status() == "DELETE_IN_PROGRESS"
    (ended,) = members.waiting()
    members.complete(ended)
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()


def test_rollback_completes_after_the_last_instance_ends(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, signals=1, LifecycleHookSpecificationList=[hook(LONG_S)])))
    stacks.signal("Group", "i-1", "FAILURE")
    assert stacks.status() == "ROLLBACK_IN_PROGRESS"
    members = Group(aws=aws, name=stacks.physical_id("Group"))
    (ended,) = members.waiting()
    set_timeout(members, 1)
    beat(members, ended)
    wait_for_server(lambda: stacks.status() == "ROLLBACK_COMPLETE", "the rollback")


def test_removed_group_is_cleaned_up_once_empty(aws: Aws, stacks: Stacks) -> None:
    members = hooked(stacks, 1)
    (member,) = members.in_service()
    stacks.update(cluster())
    assert stacks.status() == "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
    members.complete(member)
    assert stacks.status() == "UPDATE_COMPLETE"
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_group_with_instances_is_deleted_by_force_only(aws: Aws, stacks: Stacks) -> None:
    members = hooked(stacks, 2)
    one, other = sorted(members.in_service())
    members.terminate(one, decrement=True)
    with pytest.raises(ClientError, match=r"ResourceInUse.*You cannot delete an AutoScalingGroup while"):
        members.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=members.name)
    members.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=members.name, ForceDelete=True)
    assert {state(aws, one), state(aws, other)} == {"terminated"}
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    assert members.autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=members.name)["LifecycleHooks"] == []
    stacks.cloudformation.delete_stack(StackName="stack")
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()
