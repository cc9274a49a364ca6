"""Test that a group replaces instances that are reported as unhealthy."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Group, Stacks, state, wait_for_server
from tests.local.control_plane.templates import cluster, group, hook, launch_template


def create_group(stacks: Stacks, size: int, **properties: Any) -> Group:
    stacks.create(cluster(Group=group(size, **properties)))
    return Group(aws=stacks.aws, name=stacks.physical_id("Group"))


def test_unhealthy_instance_is_replaced(aws: Aws, stacks: Stacks) -> None:
    asg = create_group(stacks, 2)
    before = asg.in_service()
    sick = min(before)
    asg.autoscaling.set_instance_health(InstanceId=sick, HealthStatus="Unhealthy")
    assert state(aws, sick) == "terminated"
    assert len(asg.in_service()) == 2
    assert before - {sick} < asg.in_service()
    assert asg.described()["DesiredCapacity"] == 2
    answer = asg.autoscaling.describe_scaling_activities(AutoScalingGroupName=asg.name)["Activities"]
    assert answer[1]["Cause"].endswith("an instance was taken out of service in response to a user health-check.")


def test_unhealthy_instance_waits_for_its_hook(aws: Aws, stacks: Stacks) -> None:
    asg = create_group(stacks, 1, LifecycleHookSpecificationList=[hook(600)])
    (sick,) = asg.in_service()
    asg.autoscaling.set_instance_health(InstanceId=sick, HealthStatus="Unhealthy")
    assert state(aws, sick) == "running"
    states = {i["InstanceId"]: (i["HealthStatus"], i["LifecycleState"]) for i in asg.described()["Instances"]}
    assert states.pop(sick) == ("Unhealthy", "Terminating:Wait")
    assert [*states.values()] == [("Healthy", "InService")]
    with pytest.raises(ClientError, match=f"The instance {sick} is not in InService"):
        asg.autoscaling.set_instance_health(InstanceId=sick, HealthStatus="Healthy")


def test_grace_period_is_respected_unless_the_call_overrides_it(stacks: Stacks) -> None:
    asg = create_group(stacks, 1, HealthCheckGracePeriod=600)
    (young,) = asg.in_service()
    asg.autoscaling.set_instance_health(InstanceId=young, HealthStatus="Unhealthy")
    assert asg.in_service() == {young}
    asg.autoscaling.set_instance_health(InstanceId=young, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False)
    assert asg.in_service().isdisjoint({young})


def test_healthy_instance_stays(stacks: Stacks) -> None:
    asg = create_group(stacks, 1)
    (member,) = asg.in_service()
    asg.autoscaling.set_instance_health(InstanceId=member, HealthStatus="Healthy")
    assert asg.in_service() == {member}


def test_unknown_instance_or_status_is_refused(stacks: Stacks) -> None:
    asg = create_group(stacks, 1)
    (member,) = asg.in_service()
    with pytest.raises(ClientError, match="No managed instance found for instance ID: i-00000000000000000"):
        asg.autoscaling.set_instance_health(InstanceId="i-00000000000000000", HealthStatus="Unhealthy")
    with pytest.raises(ClientError, match=r"Valid instance health states are: \[Healthy, Unhealthy\]"):
        asg.autoscaling.set_instance_health(InstanceId=member, HealthStatus="Ill")


def test_group_tries_again_when_it_cannot_launch_a_replacement(aws: Aws, stacks: Stacks) -> None:
    ec2 = aws.client("ec2")
    ec2.create_key_pair(KeyName="lost")
    resources = cluster(Group=group(1))["Resources"] | {"Template": launch_template(KeyName="lost")}
    stacks.create({"Resources": resources})
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    (sick,) = asg.in_service()
    ec2.delete_key_pair(KeyName="lost")
    asg.autoscaling.set_instance_health(InstanceId=sick, HealthStatus="Unhealthy")
    assert asg.members() == {}
    why = "The key pair 'lost' does not exist. Launching EC2 instance failed."
    assert asg.activities()[0] == ("Failed", f"Launching a new EC2 instance.  Status Reason: {why}")
    ec2.create_key_pair(KeyName="lost")
    wait_for_server(lambda: len(asg.in_service()) == 1, "the group to try again")
    ec2.delete_key_pair(KeyName="lost")
