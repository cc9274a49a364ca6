"""Test preflight's report on an existing network when AWS throttles or denies its queries, or the network is gone."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError

from cli.preflight import checks
from cli.preflight.finding import Finding
from tests.cli.preflight.stubbed_account import CALLER, Account

VPC, SUBNET = "vpc-01234567", "subnet-0000000a"
QUERIES = ("describe_subnets", "describe_vpc_endpoints", "describe_route_tables", "describe_vpc_attribute")
"""Queries about the network, in their order."""
ANSWERS: dict[str, dict[str, Any]] = {
    "describe_subnets": {
        "Subnets": [
            {
                "SubnetId": SUBNET,
                "VpcId": VPC,
                "CidrBlock": "10.8.0.0/24",
                "AvailabilityZone": "eu-west-1b",
                "AvailableIpAddressCount": 100,
                "MapPublicIpOnLaunch": False,
            }
        ]
    },
    "describe_vpc_endpoints": {"VpcEndpoints": []},
    "describe_route_tables": {
        "RouteTables": [
            {
                "RouteTableId": "rtb-1",
                "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1", "State": "active"}],
                "Associations": [{"Main": True}],
            }
        ]
    },
}
REFUSALS = {
    "RequestLimitExceeded": "Request limit exceeded.",
    "UnauthorizedOperation": f"You are not authorized to perform this operation.\nUser: {CALLER} is not authorized",
    "InvalidVpcID.NotFound": f"The vpc ID '{VPC}' does not exist",
    "InternalError": "An internal error has occurred",
}


@pytest.fixture
def findings(account: Account, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Finding]]:
    """Run preflight with its checks of the network alone."""
    account.settings |= {"private": True, "vpc_id": VPC, "subnet_id": SUBNET, "worker_count": 2}
    del account.settings["availability_zone"]
    monkeypatch.setattr(checks, "CHECKS", [check for check in checks.CHECKS if check[0] == "subnets"])
    account.answers("sts", "get_caller_identity", {"Account": "123456789012", "Arn": CALLER})

    def run() -> list[Finding]:
        target = account.target()
        return [*checks.findings(account.clients, target.props, {})]

    return run


@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("query", QUERIES)
def test_each_refused_query_is_one_line_and_no_traceback(
    account: Account, findings: Callable[[], list[Finding]], query: str, code: str
) -> None:
    account["cloudformation"].add_client_error("describe_stacks", "ValidationError", "Stack does not exist")
    for name in QUERIES[: QUERIES.index(query)]:
        account.answers("ec2", name, ANSWERS[name])
    account["ec2"].add_client_error(query, code, REFUSALS[code])
    [found] = findings()
    assert found.level == "warning"
    assert "\n" not in str(found)
    assert REFUSALS[code].split("\n")[0].rstrip(".") in found.sentence


def test_subnet_that_is_gone_is_named_with_a_way_to_find_others(
    account: Account, findings: Callable[[], list[Finding]]
) -> None:
    account.answers("ec2", "describe_subnets", {"Subnets": []})
    account.answers("ec2", "describe_vpcs", {"Vpcs": [{"VpcId": VPC}]})
    [found] = findings()
    assert (found.level, found.sentence) == (
        "problem", f"subnet_id {SUBNET} and master_subnet_id {SUBNET}: no subnet of {VPC}"
    )  # fmt: skip
    assert found.fix.endswith(f"--filters Name=vpc-id,Values={VPC}")


def test_service_that_does_not_answer_is_one_line(
    account: Account, findings: Callable[[], list[Finding]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConnectTimeoutError(endpoint_url="https://ec2.eu-west-1.amazonaws.com")

    monkeypatch.setattr(account.clients.ec2, "_make_api_call", fail)
    [found] = findings()
    assert (found.level, "\n" in str(found)) == ("warning", False)
    assert "https://ec2.eu-west-1.amazonaws.com" in str(found)
