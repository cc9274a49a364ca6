"""Compare four clusters' prices with figures calculated by hand from AWS's list prices of us-east-1."""

from collections.abc import Callable
from typing import Any

import pytest

from bootstrap.aws.group_sizes import PAUSED
from bootstrap.contract import MASTER, WORKER
from cli.aws.deployed_template import DeployedTemplate
from cli.costs.parts import billed_parts
from stacks.prices.price_list import price_list
from stacks.prices.rate import costs_by_use, hourly_rate
from stacks.settings.props import ClusterProps
from tests.local.control_plane.templates import attribute, reference, resource
from tests.stacks.template_parts import Template

Synthesize = Callable[..., Template]
NAME = "deeplearning"
CLUSTERS: list[tuple[dict[str, Any], float, float, str]] = [
    # 2 nodes of 0.8048, 2 volumes of 150 GiB at 0.08 per month of 730 h, a NAT gateway of 0.045, 2 addresses of 0.005.
    ({}, 2 * 0.8048 + 2 * 150 * 0.08 / 730, 0.045 + 2 * 0.005, "1.70 USD an hour"),
    ({"instance_type": "p5.48xlarge", "efa": "off"}, 2 * 55.04 + 2 * 12 / 730, 0.055, "110.17 USD an hour"),
    # The master has no address, so the NAT gateway's is the only one.
    ({"private": True, "instance_type": "c5.large"}, 2 * 0.085 + 2 * 12 / 730, 0.045 + 0.005, "0.25 USD an hour"),
    (
        {"worker_count": 3, "instance_type": "c5.large", "root_volume_gib": 30},
        4 * 0.085 + 4 * 30 * 0.08 / 730,
        0.055,
        "0.41 USD an hour",
    ),
]


FOREIGN: dict[str, Any] = {
    "OtherTemplate": resource("EC2::LaunchTemplate", LaunchTemplateData={"InstanceType": "p5.48xlarge"}),
    "OtherAddress": resource("EC2::EIP", Domain="vpc"),
    "OtherNat": resource("EC2::NatGateway", AllocationId=attribute("AllocationId", "OtherAddress")),
    "OtherTable": resource("EC2::RouteTable", VpcId=reference("OtherVpc")),
    "OtherRoute": resource("EC2::Route", RouteTableId=reference("OtherTable"), NatGatewayId=reference("OtherNat")),
}
"""Parts of a user's own app, before those of the cluster in the same stack."""


@pytest.mark.parametrize(("settings", "nodes", "paused", "message"), CLUSTERS, ids=lambda value: str(value))
def test_cost_agrees_with_a_hand_calculation(
    synthesize: Synthesize, settings: dict[str, Any], nodes: float, paused: float, message: str
) -> None:
    template = synthesize(**settings)
    assert template["Outputs"]["PricePerHour"]["Value"] == f"{message} (list prices of us-east-1, 2026-07-20)"
    deployed = DeployedTemplate(stack_name="x", resources={**FOREIGN, **template["Resources"]})
    rate = hourly_rate(billed_parts(deployed, NAME, ClusterProps(**settings).initial_sizes), price_list("us-east-1"))
    assert rate.total == pytest.approx(nodes + paused, abs=1e-9)
    none = hourly_rate(billed_parts(deployed, NAME, {MASTER: PAUSED, WORKER: PAUSED}), price_list("us-east-1"))
    assert none.total == none.fixed == pytest.approx(paused)


@pytest.mark.parametrize(
    ("shared_storage", "message"),
    [
        ("efs", "bucket, shared storage, logs and traffic"),
        ("efs:fs-0123456789abcdef0", "bucket, logs and traffic"),
        ("none", "bucket, logs and traffic"),
    ],
)
def test_parts_without_a_price_per_hour_are_named(shared_storage: str, message: str) -> None:
    assert costs_by_use(ClusterProps(shared_storage=shared_storage)) == message


def test_type_without_a_price_has_no_total(synthesize: Synthesize) -> None:
    message = synthesize(instance_type="p5e.48xlarge", efa="off")["Outputs"]["PricePerHour"]["Value"]
    assert message == "an unknown price an hour (list prices of us-east-1, 2026-07-20)"


def test_missing_region_uses_and_names_another_regions_prices() -> None:
    assert price_list("eu-west-1").describe() == "list prices of us-east-1, 2026-07-20"
