"""Test a cluster with candidate zones: subnets in each, nodes in one, and no nodes until that one is chosen."""

from datetime import datetime, timedelta, timezone
from ipaddress import IPv4Network
from typing import Any

import pytest

from bootstrap.contract import IMMUTABLE_ZONE, NO_ZONE
from cli.up.attempt import ATTEMPT_TAG
from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks.synthesis import Synthesize
from tests.stacks.template_parts import resources

ZONES = ("us-east-1c", "us-east-1a", "us-east-1b")
GROUP, SUBNET = "AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::Subnet"
OPTIONS: dict[str, Any] = {"worker_count": 2, "shared_storage": "efs", "ami": "ami-01234567"}


def zones_of(template: dict[str, Any], value: Any) -> list[str]:
    """Return the zones of the subnets that a value names."""
    return [template["Resources"][reference["Ref"]]["Properties"]["AvailabilityZone"] for reference in value]


def groups(template: dict[str, Any]) -> list[tuple[list[str], tuple[int, ...], bool]]:
    """Return each group's zones, its sizes, and whether a deploy waits for its nodes."""
    found = resources(template, GROUP)
    return [
        (
            zones_of(template, group["Properties"]["VPCZoneIdentifier"]),
            tuple(int(group["Properties"][name]) for name in ("MinSize", "DesiredCapacity", "MaxSize")),
            "CreationPolicy" in group,
        )
        for group in found
    ]


def guard(template: dict[str, Any]) -> str:
    [value] = [parameter["Default"] for name, parameter in template["Parameters"].items() if IMMUTABLE_ZONE in name]
    return str(value)


@pytest.fixture(scope="module")
def unplaced(synthesize: Synthesize) -> dict[str, Any]:
    return synthesize(zones=ZONES, **OPTIONS)


def test_every_candidate_has_subnets_and_a_mount_target(unplaced: dict[str, Any]) -> None:
    subnets = [resource["Properties"] for resource in resources(unplaced, SUBNET)]
    assert sorted(subnet["AvailabilityZone"] for subnet in subnets) == sorted(ZONES * 2)
    blocks = [IPv4Network(subnet["CidrBlock"]) for subnet in subnets]
    assert {block.prefixlen for block in blocks} == {19}
    targets = [resource["Properties"]["SubnetId"] for resource in resources(unplaced, "AWS::EFS::MountTarget")]
    assert zones_of(unplaced, targets) == sorted(ZONES)
    [nat] = resources(unplaced, "AWS::EC2::NatGateway")
    assert zones_of(unplaced, [nat["Properties"]["SubnetId"]]) == ["us-east-1a"]
    # Each subnet has a way out: the network's gateway or the only NAT gateway.
    assert len(resources(unplaced, "AWS::EC2::Route")) == len(subnets)


def test_no_node_starts_before_the_zone_is_chosen(unplaced: dict[str, Any], synthesize: Synthesize) -> None:
    assert groups(unplaced) == [(["us-east-1c"], (0, 0, 0), False)] * 2
    assert guard(unplaced) == NO_ZONE
    placed = synthesize(zones=ZONES, availability_zone="us-east-1b", **OPTIONS)
    assert groups(placed) == [(["us-east-1b"], (1, 1, 1), True), (["us-east-1b"], (2, 2, 2), True)]
    assert guard(placed) == "us-east-1b"
    same = [SUBNET, "AWS::EC2::NatGateway", "AWS::EC2::Route", "AWS::EFS::MountTarget", "AWS::EC2::VPC"]
    assert [resources(placed, kind) for kind in same] == [resources(unplaced, kind) for kind in same]


def test_another_order_of_zones_changes_only_the_groups_and_the_address(
    unplaced: dict[str, Any], synthesize: Synthesize
) -> None:
    moved = synthesize(zones=sorted(ZONES), **OPTIONS)
    assert {zone for zones, _, _ in groups(moved) for zone in zones} == {"us-east-1a"}
    changed = {
        resource["Type"] for name, resource in moved["Resources"].items() if resource != unplaced["Resources"].get(name)
    }
    # The master's address waits for the way out of its subnet.
    assert changed == {GROUP, "AWS::EC2::EIP"}
    assert moved["Parameters"] == unplaced["Parameters"]


def test_subnets_of_six_zones_fit_into_a_small_vpc(synthesize: Synthesize) -> None:
    zones = tuple(f"us-east-1{letter}" for letter in "abcdef")
    found = synthesize(zones=zones, vpc_cidr="10.9.0.0/24", worker_count=11, ami="ami-01234567")
    assert {IPv4Network(resource["Properties"]["CidrBlock"]).prefixlen for resource in resources(found, SUBNET)} == {28}


@pytest.mark.parametrize(
    ("given", "error_line"),
    [
        ({"zones": "us-east-1"}, "zones must be zones like us-east-1a, got 'us-east-1'"),
        ({"zones": ",".join(f"us-east-1{letter}" for letter in "abcdefg")}, "zones must be at most 6 zones"),
        (
            {"zones": "us-east-1a,us-east-1b", "availability_zone": "us-east-1c"},
            "availability_zone must be one of zones, us-east-1a, us-east-1b, got 'us-east-1c'",
        ),
        ({"zones": "us-east-1a", "vpc_id": "vpc-01234567", "subnet_id": "subnet-01234567"}, "zones must not be set"),
        ({"zones": "us-east-1a,us-east-1b", "vpc_cidr": "10.0.0.0/27"}, "vpc_cidr must be at most /26 for 2 zones"),
        (
            {"zones": "us-east-1a,us-east-1b", "vpc_cidr": "10.0.0.0/26", "worker_count": 12},
            "worker_count must be at most 11 in vpc_cidr 10.0.0.0/26",
        ),
    ],
)
def test_unusable_candidates_are_refused_with_the_reason(given: dict[str, Any], error_line: str) -> None:
    with pytest.raises(SettingsError, match=error_line):
        ClusterProps.from_context({"cluster": given})


def test_candidates_are_of_the_region() -> None:
    with pytest.raises(SettingsError, match="zones must be zones of eu-west-1, got 'us-east-1c'"):
        ClusterProps(zones=ZONES).check_region("eu-west-1")


def test_tags_leave_room_for_the_attempt_of_up(synthesize: Synthesize) -> None:
    tags = {f"team-{number}": "vision" for number in range(40)}
    expires = datetime.now(timezone.utc) + timedelta(days=30)
    made = synthesize(zones=ZONES, tags=tags, expires=f"{expires:%Y-%m-%dT%H:%M:%SZ}", idle_stop="30m", **OPTIONS)
    for group in resources(made, GROUP):
        of_group = {tag["Key"] for tag in group["Properties"]["Tags"]}
        assert len(of_group) >= len(tags) + 3
        assert len(of_group | {ATTEMPT_TAG}) <= 50  # "Tag restrictions", Amazon EC2 Auto Scaling User Guide
    with pytest.raises(SettingsError, match="tags must be at most 40, got 41"):
        ClusterProps(tags=tags | {"one": "more"})
