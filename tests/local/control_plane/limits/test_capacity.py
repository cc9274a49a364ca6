"""Test groups that grow beyond EC2's capacity: what does not fit is a failed activity, and is retried."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.control_plane.autoscaling import termination
from local.control_plane.request_lock import LOCK
from tests.local.control_plane.harness import REGION, AccountLimits, Aws, Group, Stacks
from tests.local.control_plane.templates import cluster, group, launch_template, reference, second_subnet
from tests.waiting import wait_until

SHORT = (
    "We currently do not have sufficient c5.large capacity in the Availability Zone you requested (us-east-1a). "
    "Our system will be working on provisioning additional capacity. You can currently get c5.large capacity by not "
    "specifying an Availability Zone in your request or choosing us-east-1b, us-east-1c, us-east-1d, us-east-1f. "
    "Launching EC2 instance failed."
)


def test_group_without_room_stays_short_with_the_reason(aws: Aws, stacks: Stacks, limits: AccountLimits) -> None:
    limits.set(a=1)
    stacks.create(cluster(Group=group(3)))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    assert stacks.status() == "CREATE_COMPLETE"
    assert len(asg.in_service()) == 1
    assert asg.described()["DesiredCapacity"] == 3
    answer = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=asg.name)
    failed, *_, launched = answer["Activities"]  # the group tries again
    assert (failed["StatusCode"], failed["StatusMessage"]) == ("Failed", SHORT)
    assert failed["Description"] == f"Launching a new EC2 instance.  Status Reason: {SHORT}"
    assert launched["StatusCode"] == "Successful"


def test_ended_node_frees_its_place_for_its_replacement(aws: Aws, stacks: Stacks, limits: AccountLimits) -> None:
    limits.set(a=2)
    stacks.create(cluster(Group=group(2)))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    before = asg.in_service()
    aws.client("ec2").terminate_instances(InstanceIds=[min(before)])
    assert len(asg.in_service()) == 2
    assert asg.in_service() - before


def test_new_room_is_taken_at_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    class Group:
        name = "workers"
        desired_capacity = 2
        tried: list[int]

        def __init__(self) -> None:
            self.tried = []
            self.autoscaling_backend = self
            self.autoscaling_groups = {self.name: self}

        def set_desired_capacity(self, capacity: int) -> None:
            self.tried.append(capacity)

    monkeypatch.setattr(termination, "RETRY_S", 0.01)
    asg = Group()
    with LOCK:  # the next try waits for it
        for _ in range(3):
            termination.retry_launches(asg)  # type: ignore[arg-type]  # stands in for moto's
    wait_until(lambda: asg.tried == [2], "one try again", timeout_s=60, every_s=0.01)


def test_group_balances_zones_and_fills_the_free_one(aws: Aws, stacks: Stacks, limits: AccountLimits) -> None:
    template = cluster(
        Group=group(4, VPCZoneIdentifier=[reference("Private"), reference("Other")]), Other=second_subnet()
    )
    limits.set(a=1)
    stacks.create(template)
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    zones = sorted(instance["AvailabilityZone"] for instance in asg.described()["Instances"])
    assert zones == [f"{REGION}a", *[f"{REGION}b"] * 3]


@pytest.mark.parametrize(
    ("instance_type", "refusal"),
    [
        (
            "p6-b200.48xlarge",
            "Your requested instance type (p6-b200.48xlarge) is not supported in your requested Availability Zone "
            "(us-east-1a). Please retry your request by not specifying an Availability Zone or choosing us-east-1c.",
        ),
        (
            "p5e.48xlarge",  # in no zone of the region
            "The requested configuration is currently not supported. Please check the documentation for supported "
            "configurations.",
        ),
    ],
)
def test_type_not_offered_in_the_zone_is_refused(stacks: Stacks, instance_type: str, refusal: str) -> None:
    template = cluster(Group=group(1))
    template["Resources"]["Template"] = launch_template(InstanceType=instance_type)
    stacks.create(template)
    (why,) = [reason for status, reason in stacks.events("Group") if status == "CREATE_FAILED"]
    assert why == f"You must use a valid fully-formed launch template. {refusal}"


def test_zone_with_more_spot_capacity_scores_higher(aws: Aws, limits: AccountLimits) -> None:
    limits.set(spot=True, a=2, b=0)
    ec2 = aws.client("ec2")
    names = {zone["ZoneId"]: zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}

    def scores(*types: str, of_zones: bool = True) -> list[dict[str, Any]]:
        answer = ec2.get_spot_placement_scores(
            InstanceTypes=[*types], TargetCapacity=4, RegionNames=[REGION], SingleAvailabilityZone=of_zones
        )
        return list(answer["SpotPlacementScores"])

    zone_scores = scores("c5.large")
    assert {score["Region"] for score in zone_scores} == {REGION}
    by_name = {names[score["AvailabilityZoneId"]]: score["Score"] for score in zone_scores}
    assert [by_name[f"{REGION}{letter}"] for letter in "abc"] == [1, 1, 3]
    assert zone_scores[0]["Score"] == 3
    assert {score["Score"] for score in scores("c5.large", "m5.large", "r5.large")} == {10}
    assert scores("c5.large", of_zones=False) == [{"Region": REGION, "Score": 3}]
    with pytest.raises(ClientError, match="InstanceTypes"):
        scores()
