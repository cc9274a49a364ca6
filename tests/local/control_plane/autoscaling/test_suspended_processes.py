"""Test that a group does nothing for which its process is suspended."""

import pytest

from tests.local.control_plane.harness import Aws, Group, Stacks, state
from tests.local.control_plane.templates import cluster, group, hook


def create_group(stacks: Stacks, size: int, *suspended: str) -> Group:
    """Create a group with long hooks and suspended processes."""
    hooks = [hook(600)] if "Terminate" not in suspended else []
    stacks.create(cluster(Group=group(size, LifecycleHookSpecificationList=hooks)))
    asg = Group(aws=stacks.aws, name=stacks.physical_id("Group"))
    asg.autoscaling.suspend_processes(AutoScalingGroupName=asg.name, ScalingProcesses=[*suspended])
    return asg


def resume(asg: Group) -> None:
    asg.autoscaling.resume_processes(AutoScalingGroupName=asg.name)


def health(asg: Group) -> dict[str, str]:
    return {i["InstanceId"]: i["HealthStatus"] for i in asg.described()["Instances"]}


def test_lost_instance_is_not_replaced_while_launch_is_suspended(aws: Aws, stacks: Stacks) -> None:
    asg = create_group(stacks, 2, "Launch")
    lost, kept = sorted(asg.in_service())
    aws.client("ec2").terminate_instances(InstanceIds=[lost])
    assert asg.members() == {kept: "InService"}
    asg.autoscaling.set_desired_capacity(AutoScalingGroupName=asg.name, DesiredCapacity=2)
    assert asg.members() == {kept: "InService"}
    resume(asg)
    assert len(asg.in_service()) == 2


@pytest.mark.parametrize("process", ["ReplaceUnhealthy", "Terminate"])
@pytest.mark.parametrize("how", ["health", "terminated", "stopped"])
def test_unhealthy_instance_stays_while_replacing_is_suspended(
    aws: Aws, stacks: Stacks, process: str, how: str
) -> None:
    asg = create_group(stacks, 1, process)
    (sick,) = asg.in_service()
    before = asg.activities()
    if how == "health":
        asg.autoscaling.set_instance_health(InstanceId=sick, HealthStatus="Unhealthy")
    elif how == "terminated":
        aws.client("ec2").terminate_instances(InstanceIds=[sick])
    else:
        aws.client("ec2").stop_instances(InstanceIds=[sick])
    assert health(asg) == {sick: "Unhealthy"}
    assert asg.in_service() == {sick}
    assert asg.activities() == before
    resume(asg)
    (replacement,) = asg.in_service()
    assert replacement != sick
    assert asg.activities()[1][1] == f"Terminating EC2 instance: {sick}"
    assert (sick in asg.members()) == (how != "terminated" and process != "Terminate"), "only the living wait"


def test_group_does_not_shrink_while_terminate_is_suspended(aws: Aws, stacks: Stacks) -> None:
    asg = create_group(stacks, 2, "Terminate")
    before = asg.in_service()
    stacks.update(cluster(Group=group(1)))
    assert asg.in_service() == before
    resume(asg)
    (kept,) = asg.in_service()
    (ended,) = before - {kept}
    assert state(aws, ended) == "terminated"


def test_stack_of_a_group_with_all_processes_suspended_can_be_deleted(aws: Aws, stacks: Stacks) -> None:
    stacks.create(cluster(Group=group(2, LifecycleHookSpecificationList=[hook(600)])))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    asg.autoscaling.suspend_processes(AutoScalingGroupName=asg.name)
    for lost in asg.in_service():
        aws.client("ec2").terminate_instances(InstanceIds=[lost])
    assert set(health(asg).values()) == {"Unhealthy"}
    stacks.cloudformation.delete_stack(StackName="stack")
    assert aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
