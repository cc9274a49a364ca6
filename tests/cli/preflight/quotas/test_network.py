"""Test the check of the quotas of Elastic IPs and VPCs."""

from typing import Any

import pytest

from cli.preflight.quotas import network
from tests.cli.preflight.stubbed_account import NEW_STACK, Account, Quota


def new(account: Account) -> None:
    account["cloudformation"].add_client_error("describe_stacks", **NEW_STACK)


@pytest.mark.parametrize(("allowed", "level"), [(4, "ok"), (3, "problem")])
def test_nat_gateway_and_the_master_need_an_address_each(
    account: Account, quota: Quota, allowed: int, level: str
) -> None:
    new(account)
    account.answers("ec2", "describe_addresses", {"Addresses": [{}, {}]})
    quota("ec2", "L-0263D0A3", allowed)
    found = account.finds(network.check_elastic_ip_quota)
    assert found.level == level
    assert found.sentence == f"the cluster needs 2; EC2-VPC Elastic IPs: {allowed}, 2 in use"
    if level == "problem":
        assert found.fix.endswith("--service-code ec2 --quota-code L-0263D0A3 --desired-value 4")


@pytest.mark.parametrize(("allowed", "level"), [(4, "ok"), (3, "problem")])
def test_vpcs_of_every_page_count(account: Account, quota: Quota, allowed: int, level: str) -> None:
    new(account)
    account.answers("ec2", "describe_vpcs", {"Vpcs": [{}, {}], "NextToken": "more"}, {})
    account.answers("ec2", "describe_vpcs", {"Vpcs": [{}]}, {"NextToken": "more"})
    quota("vpc", "L-F678F1CE", allowed)
    found = account.finds(network.check_vpc_quota)
    assert found.level == level
    if level == "problem":
        assert found.fix.endswith("--service-code vpc --quota-code L-F678F1CE --desired-value 4")


def test_network_quota_is_not_checked_for_a_deployed_cluster(account: Account) -> None:
    stack: dict[str, Any] = {
        "StackName": "demo",
        "CreationTime": "2026-01-01T00:00:00Z",
        "StackStatus": "UPDATE_COMPLETE",
    }
    account.answers("cloudformation", "describe_stacks", {"Stacks": [stack]})
    account.answers("ec2", "describe_addresses", {"Addresses": []})
    assert account.finds(network.check_elastic_ip_quota).level == "ok"
