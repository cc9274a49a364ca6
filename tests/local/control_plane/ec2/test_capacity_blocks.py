"""Test nodes in a Capacity Block: they launch only within its time and market, and end before it does."""

import json
import math
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.commands import capacity_block
from local.control_plane.ec2.capacity_reservations import TERMINATED_BEFORE
from local.errors import LocalError
from tests.local.control_plane.harness import REGION, Aws, Group, Stacks
from tests.local.control_plane.templates import cluster, group, launch_template
from tests.waiting import wait_until

MARKET = {"MarketType": "capacity-block"}
HOUR = timedelta(hours=1)


def buy(aws: Aws, *, starts: timedelta, ends: timedelta, zone: str = f"{REGION}a", count: int = 2) -> str:
    """Buy a block of c5.large; the times count from now."""
    now, ec2 = datetime.now(timezone.utc), aws.client("ec2")
    offers = ec2.describe_capacity_block_offerings(
        InstanceType="c5.large", InstanceCount=count, CapacityDurationHours=math.ceil((ends - starts) / HOUR),
        StartDateRange=now + starts, EndDateRange=now + ends,
    )["CapacityBlockOfferings"]  # fmt: skip
    offer = next(offering for offering in offers if offering["AvailabilityZone"] == zone)
    bought = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    return str(bought["CapacityReservation"]["CapacityReservationId"])


def described(aws: Aws, block: str) -> dict[str, Any]:
    [reservation] = aws.client("ec2").describe_capacity_reservations(CapacityReservationIds=[block])[
        "CapacityReservations"
    ]
    return dict(reservation)


def nodes(size: int, block: str, market: dict[str, str] | None = MARKET, **options: Any) -> dict[str, Any]:
    template = cluster(Group=group(size))
    target = {"CapacityReservationTarget": {"CapacityReservationId": block}}
    options |= {"InstanceMarketOptions": market} if market else {}
    template["Resources"]["Template"] = launch_template(CapacityReservationSpecification=target, **options)
    return template


def states(aws: Aws, instances: Iterable[str]) -> set[str]:
    reservations = aws.client("ec2").describe_instances(InstanceIds=[*instances])["Reservations"]
    return {i["State"]["Name"] for r in reservations for i in r["Instances"]}


def test_instances_are_terminated_half_an_hour_before_the_block_ends(aws: Aws, stacks: Stacks) -> None:
    for seconds in (4, 30):
        begun = time.monotonic()
        block = buy(aws, starts=-HOUR, ends=TERMINATED_BEFORE + timedelta(seconds=seconds))
        name = stacks.create(nodes(2, block), f"ends-in-{seconds}")
        status, reservation = stacks.status(name), described(aws, block)
        members = (
            [*Group(aws=aws, name=stacks.physical_id("Group", name)).members()] if status == "CREATE_COMPLETE" else []
        )
        before = states(aws, members) if members else set()
        if time.monotonic() - begun < seconds:
            break
        # The end may have come before the looks, so try again with more time.
    kept = [reservation[name] for name in ("State", "ReservationType", "AvailableInstanceCount")]
    assert (status, len(members), before) == ("CREATE_COMPLETE", 2, {"running"})
    assert kept == ["active", "capacity-block", 0]
    wait_until(lambda: states(aws, members) == {"terminated"}, "EC2's termination", timeout_s=90)
    # The group wants others, but the block accepts none in its last half hour.
    assert described(aws, block)["AvailableInstanceCount"] == 2


@pytest.mark.parametrize(
    ("starts", "market", "message"),
    [
        (HOUR, MARKET, "is not active yet"),
        (-HOUR, None, "The market type (purchasing) option is not valid"),
    ],
)
def test_launch_before_its_time_or_without_its_market_is_refused(
    aws: Aws, stacks: Stacks, starts: timedelta, market: dict[str, str] | None, message: str
) -> None:
    block = buy(aws, starts=starts, ends=3 * HOUR)
    assert described(aws, block)["State"] == ("scheduled" if starts > timedelta() else "active")
    stacks.create(nodes(1, block, market))
    assert stacks.status() == "ROLLBACK_COMPLETE"
    assert any(message in reason for _, reason in stacks.events("Group"))


def test_launch_in_its_last_half_hour_finds_no_room(aws: Aws, stacks: Stacks) -> None:
    block = buy(aws, starts=-2 * HOUR, ends=TERMINATED_BEFORE - timedelta(minutes=1))
    assert described(aws, block)["State"] == "active"
    stacks.create(nodes(1, block, MARKET))
    asg = Group(aws=aws, name=stacks.physical_id("Group"))
    assert asg.in_service() == set()
    status, why = asg.activities()[0]
    assert status == "Failed"
    assert "does not have sufficient compatible and available capacity" in why


def test_block_takes_nodes_of_its_own_zone_and_of_no_placement_group(aws: Aws, stacks: Stacks) -> None:
    here = buy(aws, starts=-HOUR, ends=3 * HOUR)
    in_other_zone = buy(aws, starts=-HOUR, ends=3 * HOUR, zone=f"{REGION}b")
    assert described(aws, in_other_zone)["AvailabilityZone"] == f"{REGION}b"
    refused = {
        "elsewhere": nodes(1, in_other_zone),
        "in-a-group": nodes(1, here, Placement={"GroupName": "close-together"}),
    }
    for name, template in refused.items():
        stacks.create(template, name)
        asg = Group(aws=aws, name=stacks.physical_id("Group", name))
        assert asg.in_service() == set()
        status, why = asg.activities()[0]
        assert status == "Failed"
        assert "does not have sufficient compatible and available capacity" in why


def test_blocks_are_offered_where_the_type_is_and_with_at_most_64_instances(aws: Aws) -> None:
    ec2 = aws.client("ec2")

    def zones(instance_type: str, count: int) -> list[str]:
        answer = ec2.describe_capacity_block_offerings(
            InstanceType=instance_type, InstanceCount=count, CapacityDurationHours=24
        )
        return [offering["AvailabilityZone"] for offering in answer["CapacityBlockOfferings"]]

    assert zones("p6-b200.48xlarge", 64) == [f"{REGION}c"]
    assert len(zones("p5.48xlarge", 1)) > 1
    refusal = r"\(InvalidParameterValue\).* Each Capacity Block can have up to 64 instances\.$"
    with pytest.raises(ClientError, match=refusal):
        zones("p5.48xlarge", 65)


def test_account_has_at_most_256_instances_in_blocks_at_a_time(aws: Aws) -> None:
    # Long after the blocks of other tests.
    day, far = 24 * HOUR, 1000 * 24 * HOUR
    for _ in range(4):
        buy(aws, starts=far, ends=far + day, count=64)
    with pytest.raises(ClientError, match=r"InvalidParameterValue.*up to 256 instances across Capacity Blocks.* 257\."):
        buy(aws, starts=far - day, ends=far + day, count=1)
    buy(aws, starts=far - day, ends=far - HOUR, count=64)
    buy(aws, starts=far + day + HOUR, ends=far + 2 * day, count=64)


def test_local_aws_buys_a_block_in_the_zone_that_is_named(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_block, "client", aws.client)
    now = datetime.now(timezone.utc)
    block = capacity_block.buy_capacity_block("c5.large", count=1, starts=now, ends=now + HOUR, zone=f"{REGION}d")
    assert described(aws, block)["AvailabilityZone"] == f"{REGION}d"
    with pytest.raises(LocalError, match=rf"^p6-b200\.48xlarge is not in {REGION}a, only in {REGION}c$"):
        capacity_block.buy_capacity_block("p6-b200.48xlarge", count=1, starts=now, ends=now + HOUR, zone=f"{REGION}a")


def test_cloud_control_describes_the_block_for_the_cdk(aws: Aws) -> None:
    block = buy(aws, starts=HOUR, ends=25 * HOUR)
    control = aws.client("cloudcontrol")
    kind = "AWS::EC2::CapacityReservation"
    properties = json.loads(control.get_resource(TypeName=kind, Identifier=block)["ResourceDescription"]["Properties"])
    assert (properties["InstanceType"], properties["AvailabilityZone"]) == ("c5.large", f"{REGION}a")
    assert datetime.fromisoformat(properties["EndDate"].replace("Z", "+00:00")) - datetime.now(timezone.utc) > 24 * HOUR
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        control.get_resource(TypeName=kind, Identifier="cr-00000000000000000")
