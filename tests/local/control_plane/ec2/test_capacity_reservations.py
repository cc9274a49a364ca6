"""Test nodes in a Capacity Reservation, which accepts only its own type and zone, and no more than it has room for."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import REGION, Aws, Group, Stacks
from tests.local.control_plane.templates import cluster, group, launch_template

FULL = (
    "The requested reservation does not have sufficient compatible and available capacity for this request. "
    "Launching EC2 instance failed."
)


def reserve(aws: Aws, instance_type: str = "c5.large", zone: str = f"{REGION}a", **options: str) -> str:
    settings = {"InstanceType": instance_type, "InstancePlatform": "Linux/UNIX", "AvailabilityZone": zone} | options
    made = aws.client("ec2").create_capacity_reservation(InstanceCount=2, **settings)
    return str(made["CapacityReservation"]["CapacityReservationId"])


def available(aws: Aws, reservation: str) -> int:
    answer = aws.client("ec2").describe_capacity_reservations(CapacityReservationIds=[reservation])
    return int(answer["CapacityReservations"][0]["AvailableInstanceCount"])


def nodes(size: int, reservation: str, preference: str | None = None, **options: Any) -> dict[str, Any]:
    template = cluster(Group=group(size))
    specification: dict[str, Any] = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
    specification |= {"CapacityReservationPreference": preference} if preference else {}
    template["Resources"]["Template"] = launch_template(CapacityReservationSpecification=specification, **options)
    return template


def test_nodes_take_places_in_the_reservation_and_give_them_back(aws: Aws, stacks: Stacks) -> None:
    reservation = reserve(aws)
    stacks.create(nodes(2, reservation))
    assert available(aws, reservation) == 0
    held = aws.client("ec2").describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])
    assert [instance["CapacityReservationId"] for found in held["Reservations"] for instance in found["Instances"]] == [
        reservation
    ] * 2
    stacks.cloudformation.delete_stack(StackName="stack")
    assert available(aws, reservation) == 2


@pytest.mark.parametrize(
    ("instance_type", "zone"),
    [("c5.large", f"{REGION}a"), ("m5.large", f"{REGION}a"), ("c5.large", f"{REGION}b")],
)
def test_launch_beyond_the_reservation_fails_and_is_retried(
    aws: Aws, stacks: Stacks, instance_type: str, zone: str
) -> None:
    reservation = reserve(aws, instance_type, zone)
    if (instance_type, zone) == ("c5.large", f"{REGION}a"):
        stacks.create(nodes(2, reservation), "full")
    stacks.create(nodes(1, reservation))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    assert asg.in_service() == set()
    activities = aws.client("autoscaling").describe_scaling_activities(AutoScalingGroupName=asg.name)["Activities"]
    assert {(activity["StatusCode"], activity["StatusMessage"]) for activity in activities} == {("Failed", FULL)}
    assert asg.described()["DesiredCapacity"] == 1


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"preference": "none"}, "either a CapacityReservationId or a CapacityReservationPreference but not both"),
        ({"preference": "open"}, "either a CapacityReservationId or a CapacityReservationPreference but not both"),
        ({"InstanceMarketOptions": {"MarketType": "spot"}}, "The market type (purchasing) option is not valid"),
        (
            {"InstanceMarketOptions": {"MarketType": "capacity-block"}},
            "The market type (purchasing) option is not valid",
        ),
    ],
)
def test_what_a_reservation_excludes_is_refused(
    aws: Aws, stacks: Stacks, options: dict[str, Any], refusal: str
) -> None:
    stacks.create(nodes(1, reserve(aws), **options))
    assert stacks.status() == "ROLLBACK_COMPLETE"
    assert any(refusal in reason for _, reason in stacks.events("Group"))


@pytest.mark.parametrize(
    ("reserved", "placement"),
    [
        ({}, {"GroupName": "close-together"}),
        ({}, {"Tenancy": "dedicated"}),
        ({"Tenancy": "dedicated"}, {}),
        ({"InstancePlatform": "Windows"}, {}),
    ],
)
def test_another_placement_or_platform_finds_no_room_in_the_reservation(
    aws: Aws, stacks: Stacks, reserved: dict[str, str], placement: dict[str, str]
) -> None:
    stacks.create(nodes(1, reserve(aws, **reserved), Placement=placement))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    assert asg.in_service() == set()
    status, why = asg.activities()[0]
    assert (status, why.partition("Status Reason: ")[2]) == ("Failed", FULL)


def test_nodes_of_dedicated_tenancy_fit_in_a_reservation_of_it(aws: Aws, stacks: Stacks) -> None:
    reservation = reserve(aws, Tenancy="dedicated")
    stacks.create(nodes(1, reservation, Placement={"Tenancy": "dedicated"}))
    assert available(aws, reservation) == 1


def test_preference_for_reservations_only_may_stand_beside_the_target(aws: Aws, stacks: Stacks) -> None:
    reservation = reserve(aws)
    stacks.create(nodes(1, reservation, "capacity-reservations-only"))
    assert available(aws, reservation) == 1


def test_unknown_reservation_does_not_exist(aws: Aws) -> None:
    with pytest.raises(ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        available(aws, "cr-00000000000000000")
