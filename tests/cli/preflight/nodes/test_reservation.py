"""Test the check of a Capacity Reservation or Capacity Block."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from cli.preflight.nodes.reservation import check_reservation
from tests.cli.preflight.stubbed_account import NEW_STACK, Account

RESERVATION = "cr-0123456789abcdef0"
EXPECTED = {"CapacityReservationIds": [RESERVATION]}
FITS = {
    "State": "active",
    "InstanceType": "g6.xlarge",
    "InstancePlatform": "Linux/UNIX",
    "Tenancy": "default",
    "ReservationType": "default",
    "AvailabilityZone": "eu-west-1b",
    "TotalInstanceCount": 2,
    "AvailableInstanceCount": 2,
}


@pytest.fixture(autouse=True)
def _reserved(account: Account) -> None:
    account.settings |= {"purchase": "reservation", "capacity_reservation": RESERVATION}


def holds(account: Account, change: dict[str, Any], *instances: dict[str, Any]) -> None:
    """Describe the reservation, and the cluster's instances."""
    account.answers("ec2", "describe_capacity_reservations", {"CapacityReservations": [FITS | change]}, EXPECTED)
    filters = [
        {"Name": "tag:deeplearning:cluster", "Values": ["demo"]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    found = {"Reservations": [{"Instances": list(instances)}]}
    account.answers("ec2", "describe_instances", found, {"Filters": filters})


GROUP = "arn:aws:ec2:eu-west-1:123456789012:placement-group/near"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "holds 2 x g6.xlarge"),
        ({"State": "expired"}, "is expired"),
        ({"InstanceType": "g5.xlarge"}, "is for g5.xlarge, the nodes are g6.xlarge"),
        ({"AvailabilityZone": "eu-west-1a"}, "is in eu-west-1a, the cluster in eu-west-1b"),
        ({"AvailableInstanceCount": 1}, "has room for 1 of 2 nodes, the master among them"),
        ({"PlacementGroupArn": GROUP}, "is for placement group near, the nodes are in none"),
        ({"InstancePlatform": "Windows"}, "is for Windows, the nodes are Linux/UNIX"),
        ({"Tenancy": "dedicated"}, "has tenancy dedicated, the nodes default"),
    ],
)
def test_reservation_must_hold_every_node(account: Account, change: dict[str, Any], sentence: str) -> None:
    holds(account, change)
    found = account.finds(check_reservation)
    assert (found.level, found.sentence) == ("problem" if change else "ok", f"{RESERVATION} {sentence}")


def test_missing_subnet_has_no_zone_to_compare(account: Account) -> None:
    account.settings |= {"availability_zone": None, "vpc_id": "vpc-01234567", "subnet_id": "subnet-0000000a"}
    account.answers("ec2", "describe_capacity_reservations", {"CapacityReservations": [FITS]}, EXPECTED)
    account.answers("ec2", "describe_subnets", {"Subnets": []})
    account.answers("ec2", "describe_instances", {"Reservations": []})
    assert account.finds(check_reservation).level == "ok"


BLOCK = {
    "ReservationType": "capacity-block",
    "State": "scheduled",
    "AvailableInstanceCount": 0,
    "StartDate": datetime(2998, 12, 1, 11, 30, tzinfo=timezone.utc),
    "EndDate": datetime(2999, 1, 15, 11, 30, tzinfo=timezone.utc),
}


def describe(account: Account, change: dict[str, Any]) -> None:
    account.answers("ec2", "describe_capacity_reservations", {"CapacityReservations": [FITS | change]}, EXPECTED)


@pytest.mark.parametrize(
    ("purchase", "message"), [("reservation", "a Capacity Block"), ("capacity-block", "no Capacity")]
)
def test_reservation_of_the_wrong_kind_is_a_problem(account: Account, purchase: str, message: str) -> None:
    account.settings |= {"purchase": purchase}
    describe(account, BLOCK if purchase == "reservation" else {})
    found = account.finds(check_reservation)
    assert found.level == "problem"
    assert found.sentence.startswith(f"{RESERVATION} is {message}")


def stack(block: str) -> dict[str, Any]:
    times = "2020-01-01T11:30:00Z 2999-01-01T10:50:00Z 2999-01-01T11:30:00Z"
    outputs = [{"OutputKey": "CapacityBlock", "OutputValue": f"{block} {times}"}]
    made = {"StackName": "demo", "StackStatus": "CREATE_COMPLETE", "CreationTime": datetime(2026, 1, 1)}
    return {"Stacks": [made | {"Outputs": outputs}]}


@pytest.mark.parametrize(
    ("deployed", "levels"), [(RESERVATION, ["ok", "ok"]), ("cr-01234567", ["ok", "ok", "warning"])]
)
def test_block_times_and_effects_of_a_change_are_reported(account: Account, deployed: str, levels: list[str]) -> None:
    account.settings |= {"purchase": "capacity-block"}
    holds(account, BLOCK)
    account.answers("cloudformation", "describe_stacks", stack(deployed))
    found = account.check(check_reservation)
    assert [finding.level for finding in found] == levels
    assert found[1].sentence == (
        f"the nodes start at 2998-12-01T11:30:00Z and end at 2999-01-15T10:50:00Z, because {RESERVATION} ends at "
        "2999-01-15T11:30:00Z"
    )
    if levels[-1] == "warning":
        message = f"{deployed} holds the cluster until 2999-01-01T10:50:00Z, and this deploy removes that pause"
        assert found[-1].sentence == message


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"State": "payment-failed", "AvailableInstanceCount": 2}, "is payment-failed"),
        ({"TotalInstanceCount": 1}, "has room for 1 of 2 nodes, the master among them"),
        (
            {"EndDate": datetime(2020, 1, 1, 11, 30, tzinfo=timezone.utc)},
            "is over: its nodes end at 2020-01-01T10:50:00Z",
        ),
    ],
)
def test_block_that_cannot_hold_the_cluster_is_a_problem(
    account: Account, change: dict[str, Any], sentence: str
) -> None:
    account.settings |= {"purchase": "capacity-block"}
    holds(account, BLOCK | change)
    account.answers("cloudformation", "describe_stacks", stack(RESERVATION))
    found = [finding for finding in account.check(check_reservation) if finding.level == "problem"]
    assert [finding.sentence for finding in found] == [f"{RESERVATION} {sentence}"]


@pytest.mark.parametrize(
    ("starts_in_min", "message"), [(-1, " has begun: its start has passed"), (29, " starts at "), (31, None)]
)
def test_deploy_too_late_for_the_start_is_reported(account: Account, starts_in_min: int, message: str | None) -> None:
    account.settings |= {"purchase": "capacity-block"}
    holds(account, BLOCK | {"StartDate": datetime.now(timezone.utc) + timedelta(minutes=starts_in_min)})
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)
    late = [finding for finding in account.check(check_reservation) if finding.level == "warning"]
    assert [finding.sentence.startswith(f"{RESERVATION}{message}") for finding in late] == ([True] if message else [])
    assert all("dlcluster resume after the deploy" in str(finding) for finding in late)


@pytest.mark.parametrize(("kept", "is_right"), [("2999-01-15T11:30:00.000Z", True), ("2999-01-14T11:30:00Z", False)])
def test_outdated_block_dates_in_cdk_context_are_a_problem(account: Account, kept: str, is_right: bool) -> None:
    account.settings |= {"purchase": "capacity-block"}
    key = f"cc-api-provider:account=1:exactIdentifier={RESERVATION}:typeName=AWS$:$:EC2$:$:CapacityReservation"
    account.cdk_context[key] = [{"StartDate": "2998-12-01T11:30:00Z", "EndDate": kept}]
    account.cdk_context[key.replace(RESERVATION, "cr-other")] = [{"StartDate": kept, "EndDate": kept}]
    holds(account, BLOCK)
    account.answers("cloudformation", "describe_stacks", stack(RESERVATION))
    [*stale] = [finding for finding in account.check(check_reservation) if finding.level == "problem"]
    message = f"EndDate of {RESERVATION} is 2999-01-15T11:30:00Z, and cdk.context.json has {kept}"
    assert [(finding.sentence, finding.fix) for finding in stale] == (
        [] if is_right else [(message, f"cdk context --reset '{key}'")]
    )


@pytest.mark.parametrize(("holder", "level"), [(RESERVATION, "ok"), ("cr-1", "problem"), (None, "problem")])
def test_instances_in_the_reservation_count_as_available(account: Account, holder: str | None, level: str) -> None:
    instance = {"InstanceId": "i-1"} | ({"CapacityReservationId": holder} if holder else {})
    holds(account, {"TotalInstanceCount": 9, "AvailableInstanceCount": 0}, instance, instance)
    assert account.finds(check_reservation).level == level


def test_reservations_end_is_reported(account: Account) -> None:
    holds(account, {"EndDateType": "limited", "EndDate": datetime(2026, 12, 1, 18, tzinfo=timezone.utc)})
    fits, ends = account.check(check_reservation)
    assert (fits.level, ends.level) == ("ok", "warning")
    assert ends.sentence.startswith(f"{RESERVATION} ends at 2026-12-01T18:00:00Z")


def test_unknown_reservation_is_a_problem(account: Account) -> None:
    account.refuses("ec2", "describe_capacity_reservations", "InvalidCapacityReservationId.NotFound", EXPECTED)
    assert account.finds(check_reservation).sentence == f"there is no {RESERVATION} in eu-west-1"
