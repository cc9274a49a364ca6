"""Test that a group does nothing for which its process is suspended."""

import pytest

from tests.local.control_plane.harness import Aws, Group, Stacks, state
from tests.local.control_plane.templates import cluster, group, hook


def create_group(stacks: Stacks, size: int, *suspended: str) -> Group:
    """Create a group with long hooks and suspended processes."""
    hooks = [hook(600)] if "Terminate" not in suspended else []
    stacks.create(cluster(Group=group(size, LifecycleHookSpecificationList=hooks)))
    members = Group(aws=stacks.aws, name=stacks.physical_id("Group"))
    members.autoscaling.suspend_processes(AutoScalingGroupName=members.name, ScalingProcesses=[*suspended])
    return members


def resume(members: Group) -> None:
    members.autoscaling.resume_processes(AutoScalingGroupName=members.name)


def health(members: Group) -> dict[str, str]:
    return {i["InstanceId"]: i["HealthStatus"] for i in members.described()["Instances"]}


def test_lost_instance_is_not_replaced_while_launch_is_suspended(aws: Aws, stacks: Stacks) -> None:
    members = create_group(stacks, 2, "Launch")
    lost, kept = sorted(members.in_service())
    aws.client("ec2").terminate_instances(InstanceIds=[lost])
    assert members.members() == {kept: "InService"}
    members.autoscaling.set_desired_capacity(AutoScalingGroupName=members.name, DesiredCapacity=2)
    assert members.members() == {kept: "InService"}
    resume(members)
    assert len(members.in_service()) == 2


@pytest.mark.parametrize("process", ["ReplaceUnhealthy", "Terminate"])
@pytest.mark.parametrize("how", ["health", "terminated", "stopped"])
def test_unhealthy_instance_stays_while_replacing_is_suspended(
    aws: Aws, stacks: Stacks, process: str, how: str
) -> None:
    members = create_group(stacks, 1, process)
    (sick,) = members.in_service()
    before = members.activities()
    if how == "health":
        members.autoscaling.set_instance_health(InstanceId=sick, HealthStatus="Unhealthy")
    elif how == "terminated":
        aws.client("ec2").terminate_instances(InstanceIds=[sick])
    else:
        aws.client("ec2").stop_instances(InstanceIds=[sick])
    assert health(members) == {sick: "Unhealthy"}
    assert members.in_service() == {sick}
    assert members.activities() == before
    resume(members)
    (replacement,) = members.in_service()
    assert replacement != sick
    assert members.activities()[1][1] == f"Terminating EC2 instance: {sick}"
    assert (sick in members.members()) == (how != "terminated" and process != "Terminate"), "only the living wait"


def test_group_does_not_shrink_while_terminate_is_suspended(aws: Aws, stacks: Stacks) -> None:
    members = create_group(stacks, 2, "Terminate")
    before = members.in_service()
    stacks.update(cluster(Group=group(1)))
    assert members.in_service() == before
    resume(members)
    (kept,) = members.in_service()
    (ended,) = before - {kept}
    assert state(aws, ended) == "terminated"


def test_stack_of_a_group_with_all_processes_suspended_can_be_deleted(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(2, LifecycleHookSpecificationList=[hook(600)])))
    members = Group(aws=aws, name=stacks.physical_id("Group"))
    members.autoscaling.suspend_processes(AutoScalingGroupName=members.name)
    for lost in members.in_service():
        aws.client("ec2").terminate_instances(InstanceIds=[lost])
    assert set(health(members).values()) == {"Unhealthy"}
    stacks.cloudformation.delete_stack(StackName="stack")
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
