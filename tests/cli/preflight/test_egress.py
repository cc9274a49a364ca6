"""Test the check that ``egress`` includes the endpoints of an existing VPC."""

from typing import Any

import pytest

from cli.preflight.egress import check_egress
from cli.preflight.endpoints import GATEWAY_SERVICES, INTERFACE_SERVICES, MASTER_SERVICES
from tests.cli.moto_cluster import REGION
from tests.cli.preflight.stubbed_account import Account

VPC, SUBNET, BLOCK = "vpc-01234567", "subnet-0000000a", "10.8.0.0/24"
LISTS = {"pl-0000000a": ("s3", "52.216.0.0/15"), "pl-0000000b": ("dynamodb", "52.94.0.0/22")}


def interface(service: str) -> dict[str, Any]:
    common = {"ServiceName": f"com.amazonaws.{REGION}.{service}", "State": "available"}
    return common | {"PrivateDnsEnabled": True, "SubnetIds": [SUBNET]}


def gateway(service: str) -> dict[str, Any]:
    common = {"ServiceName": f"com.amazonaws.{REGION}.{service}", "State": "available"}
    return common | {"PrivateDnsEnabled": False, "RouteTableIds": ["rtb-1"]}


def findings(account: Account, *egress: str, missing: str = "") -> list[tuple[str, str]]:
    """Return the levels and sentences for a VPC that has every endpoint but one."""
    settings: dict[str, Any] = {"vpc_id": VPC, "subnet_id": SUBNET, "egress": egress}
    account.settings = {"cluster_name": "demo", "worker_count": 1, **settings}
    interfaces = [interface(service) for service in (*INTERFACE_SERVICES, *MASTER_SERVICES) if service != missing]
    unused = interface("sqs") | {"SubnetIds": ["subnet-0000000f"]}
    endpoints = [*map(gateway, GATEWAY_SERVICES), *interfaces, unused]
    answers = account.answers
    answers("ec2", "describe_vpc_endpoints", {"VpcEndpoints": endpoints})
    named = [entry for entry in egress if entry in LISTS]
    for entry in named:
        answers("ec2", "get_managed_prefix_list_entries", {"Entries": [{"Cidr": LISTS[entry][1]}]})
    answers("ec2", "describe_subnets", {"Subnets": [{"SubnetId": SUBNET, "CidrBlock": BLOCK}]}, {"SubnetIds": [SUBNET]})
    described = [
        {"PrefixListId": list_id, "PrefixListName": f"com.amazonaws.{REGION}.{service}"}
        for list_id, (service, _) in LISTS.items()
    ]
    answers("ec2", "describe_managed_prefix_lists", {"PrefixLists": described})
    for list_id, (_, block) in LISTS.items():
        expected = {"PrefixListId": list_id}
        answers("ec2", "get_managed_prefix_list_entries", {"Entries": [{"Cidr": block}]}, expected)
    return [(found.level, found.sentence) for found in account.check(check_egress)]


@pytest.mark.parametrize("settings", [{}, {"vpc_id": VPC, "subnet_id": SUBNET}, {"egress": (BLOCK,)}])
def test_open_or_own_network_makes_no_call(account: Account, settings: dict[str, Any]) -> None:
    account.settings = {"cluster_name": "demo", **settings}
    assert account.check(check_egress) == []


@pytest.mark.parametrize("egress", [("10.8.0.0/16", *LISTS), (BLOCK, "52.0.0.0/8")])
def test_list_that_includes_all_endpoints_is_good(account: Account, egress: tuple[str, ...]) -> None:
    assert findings(account, *egress) == [("ok", f"it includes the endpoints of {VPC}")]


def test_each_endpoint_that_is_left_out_is_a_problem(account: Account) -> None:
    interfaces, lists = findings(account, "10.8.1.0/24", "pl-0000000a")
    services = "autoscaling, cloudformation, ec2, logs"
    shown = "10.8.1.0/24,pl-0000000a leaves out"
    assert interfaces == ("problem", f"{shown} {BLOCK}, the endpoints of {services} in {SUBNET}")
    assert lists == ("problem", f"{shown} pl-0000000b, the prefix list com.amazonaws.{REGION}.dynamodb")


def test_service_without_an_endpoint_is_a_warning(account: Account) -> None:
    _, warning = findings(account, BLOCK, *LISTS, missing="logs")
    assert warning == ("warning", f"{VPC} has no endpoint of logs")
