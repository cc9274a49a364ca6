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
    asg = hooked(stacks, 2)
    stacks.update(cluster(Group=group(1, LifecycleHookSpecificationList=[hook(LONG_S)])))
    assert stacks.status() == "UPDATE_COMPLETE"
    (leaving,) = asg.waiting()
    (kept,) = asg.in_service()
    assert state(aws, leaving) == "running"
    asg.complete(leaving)
    assert state(aws, leaving) == "terminated"
    assert asg.members() == {kept: "InService"}


def test_replacement_does_not_wait_for_the_hook(aws: Aws, stacks: Stacks) -> None:
    asg = hooked(stacks, 2)
    before = asg.in_service()
    ended = min(before)
    asg.terminate(ended)
    assert asg.waiting() == {ended}
    assert len(asg.in_service()) == 2
    assert asg.in_service() & before == before - {ended}
    assert asg.described()["DesiredCapacity"] == 2
    asg.complete(ended)
    assert len(asg.members()) == 2


def test_terminating_with_decrement_shrinks_the_group_once(stacks: Stacks) -> None:
    asg = hooked(stacks, 3)
    ended = min(asg.in_service())
    for _ in range(2):
        asg.terminate(ended, decrement=True)
    assert asg.described()["DesiredCapacity"] == 2
    assert len(asg.in_service()) == 2


def test_instances_that_leave_are_not_chosen_again(stacks: Stacks) -> None:
    asg = hooked(stacks, 3)
    for size in (2, 1):
        stacks.update(cluster(Group=group(size, LifecycleHookSpecificationList=[hook(LONG_S)])))
    assert len(asg.waiting()) == 2
    assert len(asg.in_service()) == 1


def test_hook_times_out(aws: Aws, stacks: Stacks) -> None:
    asg = hooked(stacks, 1, hook(1))
    (ended,) = asg.in_service()
    asg.terminate(ended)
    wait_for_server(lambda: ended not in asg.members(), "the hook's heartbeat to time out")
    assert state(aws, ended) == "terminated"


def set_timeout(asg: Group, timeout_s: int) -> None:
    """Change the hook; the change holds for the timers that start from now on."""
    asg.autoscaling.put_lifecycle_hook(
        AutoScalingGroupName=asg.name,
        LifecycleHookName="drain",
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=timeout_s,
    )


def beat(asg: Group, instance_id: str) -> None:
    asg.autoscaling.record_lifecycle_action_heartbeat(
        AutoScalingGroupName=asg.name, LifecycleHookName="drain", InstanceId=instance_id
    )


def test_heartbeat_restarts_the_timeout(stacks: Stacks) -> None:
    asg = hooked(stacks, 1)
    for timeout_s in (2, 15):
        set_timeout(asg, timeout_s)
        (ended,) = asg.in_service()
        asg.terminate(ended)
        set_timeout(asg, LONG_S)
        try:
            beat(asg, ended)
        except ClientError:  # this machine was too slow, and the instance has gone
            continue
        break
    time.sleep(timeout_s + 1)
    assert asg.waiting() == {ended}
    set_timeout(asg, 1)
    beat(asg, ended)
    wait_for_server(lambda: not asg.waiting(), "the hook's heartbeat to time out")


@pytest.mark.parametrize("how", ["terminate_instances", "stop_instances"])
def test_instance_ended_by_hand_is_replaced_without_hooks(aws: Aws, stacks: Stacks, how: str) -> None:
    asg = hooked(stacks, 2)
    lost = min(asg.in_service())
    getattr(aws.client("ec2"), how)(InstanceIds=[lost])
    assert state(aws, lost) == "terminated"
    assert lost not in asg.members()
    assert len(asg.in_service()) == 2
    answer = asg.autoscaling.describe_scaling_activities(AutoScalingGroupName=asg.name)["Activities"]
    cause = next(a["Cause"] for a in answer if a["Description"] == f"Terminating EC2 instance: {lost}")
    assert cause.endswith("in response to an EC2 health check indicating it has been terminated or stopped.")


def test_instance_that_ends_while_it_waits_is_replaced_once(aws: Aws, stacks: Stacks) -> None:
    asg = hooked(stacks, 1)
    (ended,) = asg.in_service()
    asg.terminate(ended)
    (replacement,) = asg.in_service()
    aws.client("ec2").terminate_instances(InstanceIds=[ended])
    assert asg.members() == {replacement: "InService"}
    with pytest.raises(ClientError, match=f"No active Lifecycle Action found with instance ID {ended}"):
        asg.complete(ended)


def test_completing_without_an_action_is_refused(stacks: Stacks) -> None:
    asg = hooked(stacks, 1)
    (member,) = asg.in_service()
    with pytest.raises(ClientError, match=r"ValidationError.*No active Lifecycle Action found with instance ID"):
        asg.complete(member)
    asg.terminate(member)
    with pytest.raises(ClientError, match="No active Lifecycle Action found"):
        asg.complete(member, hook="other")
    with pytest.raises(ClientError, match="LifecycleActionResult must be one of CONTINUE, ABANDON, got STOP"):
        asg.complete(member, result="STOP")


def test_every_hook_is_waited_for_unless_one_abandons(stacks: Stacks) -> None:
    asg = hooked(stacks, 2, hook(LONG_S, "drain"), hook(LONG_S, "logs"))
    patient, hasty = sorted(asg.in_service())
    asg.terminate(patient)
    asg.complete(patient)
    assert asg.waiting() == {patient}
    asg.complete(patient, hook="logs")
    assert asg.waiting() == set()
    asg.terminate(hasty)
    asg.complete(hasty, result="ABANDON")
    assert asg.waiting() == set()


def test_deleted_hook_releases_waiting_instances(aws: Aws, stacks: Stacks) -> None:
    asg = hooked(stacks, 1)
    (ended,) = asg.in_service()
    asg.terminate(ended)
    asg.autoscaling.delete_lifecycle_hook(AutoScalingGroupName=asg.name, LifecycleHookName="drain")
    assert state(aws, ended) == "terminated"


def test_hooks_follow_the_groups_template(stacks: Stacks) -> None:
    def hooks() -> dict[str, int]:
        answer = asg.autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=asg.name)["LifecycleHooks"]
        assert not any("RoleARN" in described or "NotificationTargetARN" in described for described in answer)
        return {described["LifecycleHookName"]: described["HeartbeatTimeout"] for described in answer}

    asg = hooked(stacks, 1, hook(60, "drain"))
    assert hooks() == {"drain": 60}
    asg.autoscaling.put_lifecycle_hook(
        AutoScalingGroupName=asg.name,
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
    asg = hooked(stacks, 1)
    (ended,) = asg.in_service()
    asg.terminate(ended)
    launched, terminating, _ = asg.activities()
    assert launched[1].startswith("Launching a new EC2 instance: i-")
    assert terminating == ("MidLifecycleAction", f"Terminating EC2 instance: {ended}")
    asg.complete(ended)
    assert asg.activities()[1] == ("Successful", f"Terminating EC2 instance: {ended}")


def test_stack_deletion_waits_only_for_the_groups_dependencies(aws: Aws, stacks: Stacks) -> None:
    log = {"Log": resource("Logs::LogGroup", LogGroupName="early")}
    stacks.create(cluster(Group=group(2, LifecycleHookSpecificationList=[hook(LONG_S)]), **log))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    subnet = stacks.physical_id("Private")
    for _ in range(2):
        stacks.cloudformation.delete_stack(StackName="stack")
        assert stacks.status() == "DELETE_IN_PROGRESS"
    assert [status for status, _ in stacks.events("stack")].count("DELETE_IN_PROGRESS") == 1
    assert aws.client("logs").describe_log_groups()["logGroups"] == []
    first, last = sorted(asg.waiting())
    asg.complete(first)
    assert stacks.status() == "DELETE_IN_PROGRESS"
    assert subnet in [described["SubnetId"] for described in aws.client("ec2").describe_subnets()["Subnets"]]
    asg.complete(last)
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()
    assert subnet not in [described["SubnetId"] for described in aws.client("ec2").describe_subnets()["Subnets"]]


def test_deletion_of_a_stack_does_not_wait_for_the_dead(aws: Aws, stacks: Stacks) -> None:
    asg = hooked(stacks, 1)
    stacks.cloudformation.delete_stack(StackName="stack")
    aws.client("ec2").terminate_instances(InstanceIds=[*asg.waiting()])
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()


def test_rollback_waits_and_can_be_overtaken_by_a_deletion(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, signals=1, LifecycleHookSpecificationList=[hook(LONG_S)])))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    stacks.signal("Group", "i-1", "FAILURE")
    assert stacks.status() == "ROLLBACK_IN_PROGRESS"
    stacks.cloudformation.delete_stack(StackName="stack")
    assert stacks.status() == "DELETE_IN_PROGRESS"
    (ended,) = asg.waiting()
    asg.complete(ended)
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()


def test_rollback_completes_after_the_last_instance_ends(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(1, signals=1, LifecycleHookSpecificationList=[hook(LONG_S)])))
    stacks.signal("Group", "i-1", "FAILURE")
    assert stacks.status() == "ROLLBACK_IN_PROGRESS"
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    (ended,) = asg.waiting()
    set_timeout(asg, 1)
    beat(asg, ended)
    wait_for_server(lambda: stacks.status() == "ROLLBACK_COMPLETE", "the rollback")


def test_removed_group_is_cleaned_up_once_empty(aws: Aws, stacks: Stacks) -> None:
    asg = hooked(stacks, 1)
    (member,) = asg.in_service()
    stacks.update(cluster())
    assert stacks.status() == "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"
    asg.complete(member)
    assert stacks.status() == "UPDATE_COMPLETE"
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []


def test_group_with_instances_is_deleted_by_force_only(aws: Aws, stacks: Stacks) -> None:
    asg = hooked(stacks, 2)
    one, other = sorted(asg.in_service())
    asg.terminate(one, decrement=True)
    with pytest.raises(ClientError, match=r"ResourceInUse.*You cannot delete an AutoScalingGroup while"):
        asg.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=asg.name)
    asg.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=asg.name, ForceDelete=True)
    assert {state(aws, one), state(aws, other)} == {"terminated"}
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    assert asg.autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=asg.name)["LifecycleHooks"] == []
    stacks.cloudformation.delete_stack(StackName="stack")
    with pytest.raises(ClientError, match="does not exist"):
        stacks.status()
