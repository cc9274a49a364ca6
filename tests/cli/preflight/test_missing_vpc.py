"""Test that a VPC that does not exist is reported once, without what follows from it."""

from typing import Any

import pytest

from cli.preflight import existing_network
from cli.preflight.nodes import offering
from cli.preflight.quotas import network
from tests.cli.preflight.stubbed_account import Account

VPC, SUBNET = "vpc-01234567", "subnet-0000000a"


@pytest.fixture(autouse=True)
def _settings(account: Account) -> None:
    account.settings = {"cluster_name": "demo", "vpc_id": VPC, "subnet_id": SUBNET}


def answer_vpcs(account: Account, vpcs: list[dict[str, Any]]) -> None:
    account.answers("ec2", "describe_vpcs", {"Vpcs": vpcs}, {"Filters": [{"Name": "vpc-id", "Values": [VPC]}]})


def test_vpc_that_does_not_exist_is_the_only_problem(account: Account) -> None:
    answer_vpcs(account, [])
    found = account.finds(network.check_vpc_quota)
    sentence = f"{VPC} does not exist in eu-west-1 (or this account cannot see it)"
    assert (found.level, found.sentence) == ("problem", sentence)
    account.answers("ec2", "describe_subnets", {"Subnets": []})
    answer_vpcs(account, [])
    assert account.check(existing_network.check_subnets) == []
    account.answers("ec2", "describe_subnets", {"Subnets": []})
    assert account.check(offering.check_offering) == []


def test_vpc_without_subnets_lacks_those_in_the_settings(account: Account) -> None:
    account.answers("ec2", "describe_subnets", {"Subnets": []})
    answer_vpcs(account, [{"VpcId": VPC}])
    sentence = account.finds(existing_network.check_subnets).sentence
    assert sentence == f"subnet_id {SUBNET} and master_subnet_id {SUBNET}: no subnet of {VPC}"
