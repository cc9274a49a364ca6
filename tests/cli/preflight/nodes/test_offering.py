"""Test the check that EC2 offers the instance type in the zone."""

from typing import Any

import pytest

from cli.preflight.nodes.offering import check_offering
from tests.cli.preflight.stubbed_account import ACCOUNT, NEW_STACK, Account

PIN = f"availability-zones:account={ACCOUNT}:region=eu-west-1"


def offer(account: Account, *pages: list[str]) -> None:
    expected: dict[str, Any] = {
        "LocationType": "availability-zone",
        "Filters": [{"Name": "instance-type", "Values": ["g6.xlarge"]}],
    }
    for number, zones in enumerate(pages):
        more = {} if number + 1 == len(pages) else {"NextToken": str(number)}
        offerings = [{"Location": zone} for zone in zones]
        account.answers(
            "ec2", "describe_instance_type_offerings", {"InstanceTypeOfferings": offerings, **more}, expected
        )
        expected = {**expected, **more}


def new(account: Account) -> None:
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)


def test_offerings_are_read_on_every_page(account: Account) -> None:
    offer(account, ["eu-west-1c", "eu-west-1a"], ["eu-west-1b"])
    found = account.finds(check_offering)
    assert (found.level, found.sentence) == (
        "ok",
        "g6.xlarge is offered in eu-west-1b; also in eu-west-1a, eu-west-1c",
    )


def test_type_not_offered_in_the_zone_is_reported_with_advice(account: Account) -> None:
    offer(account, ["eu-west-1-lhr-1a", "eu-west-1c"], ["eu-west-1a"])
    new(account)
    found = account.finds(check_offering)
    assert (found.level, found.sentence) == ("problem", "g6.xlarge is not offered in eu-west-1b")
    assert found.fix == (
        "-c availability_zone=eu-west-1a or -c availability_zone=eu-west-1c or -c availability_zone=eu-west-1-lhr-1a"
    )


def test_no_zone_is_proposed_while_the_cluster_runs(account: Account) -> None:
    offer(account, ["eu-west-1c"])
    stack = {"StackName": "demo", "CreationTime": "2026-01-01T00:00:00Z", "StackStatus": "CREATE_COMPLETE"}
    account.answers("cloudformation", "describe_stacks", {"Stacks": [stack]})
    found = account.finds(check_offering)
    assert (found.level, found.fix) == ("problem", "choose another instance_type, or run cdk destroy first")


def test_type_not_offered_in_the_region_is_reported(account: Account) -> None:
    offer(account, [])
    found = account.finds(check_offering)
    assert (found.level, found.sentence) == ("problem", "g6.xlarge is not offered in eu-west-1")


def test_default_zone_is_the_first_of_the_region(account: Account) -> None:
    del account.settings["availability_zone"]
    zones = [{"ZoneName": name} for name in ("eu-west-1b", "eu-west-1-lhr-1a", "eu-west-1a")]
    account.answers("ec2", "describe_availability_zones", {"AvailabilityZones": zones})
    offer(account, ["eu-west-1b"])
    new(account)
    assert account.finds(check_offering).sentence == "g6.xlarge is not offered in eu-west-1a"


@pytest.mark.parametrize(("offered", "level"), [("eu-west-1b", "ok"), ("eu-west-1a", "problem")])
def test_pinned_zone_is_the_one_checked(account: Account, offered: str, level: str) -> None:
    del account.settings["availability_zone"]
    account.cdk_context[PIN] = ["eu-west-1c", "eu-west-1b"]
    offer(account, [offered])
    if level == "problem":
        new(account)
    assert account.finds(check_offering).level == level


def test_one_of_the_candidates_must_have_the_type(account: Account) -> None:
    account.settings |= {"zones": ["eu-west-1a", "eu-west-1b"], "availability_zone": None}
    offer(account, ["eu-west-1b", "eu-west-1c"])
    assert account.finds(check_offering).sentence == "g6.xlarge is offered in eu-west-1b of the 2 zones to choose from"
    offer(account, ["eu-west-1c"])
    found = account.finds(check_offering)
    assert (found.level, found.fix) == ("problem", "name others in zones: eu-west-1c")
