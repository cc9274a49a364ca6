"""Test the availability zones that EC2 describes."""

from tests.local.control_plane.harness import Aws


def test_zones_are_shuffled_and_include_a_local_zone(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    answers = [[zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]] for _ in range(3)]
    assert len({answer[0] for answer in answers}) == 3
    assert {tuple(sorted(answer)) for answer in answers} == {tuple(sorted(answers[0]))}
    assert min(answers[0]) == "us-east-1-bos-1a"


def test_filter_leaves_the_local_zone_out(aws: Aws) -> None:
    only = [{"Name": "zone-type", "Values": ["availability-zone"]}]
    zones = aws.client("ec2").describe_availability_zones(Filters=only)["AvailabilityZones"]
    assert min(zone["ZoneName"] for zone in zones) == "us-east-1a"


def test_default_subnets_are_in_the_regions_zones(aws: Aws) -> None:
    subnets = aws.client("ec2").describe_subnets()["Subnets"]
    assert {len(subnet["AvailabilityZone"]) for subnet in subnets} == {len("us-east-1a")}
