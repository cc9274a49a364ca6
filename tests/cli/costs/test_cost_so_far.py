"""Compare what three clusters have cost with figures calculated by hand."""

from datetime import datetime, timedelta, timezone

import pytest

from cli.aws.scaling import Activity
from cli.costs.cost_so_far import cost_so_far, instance_lifetimes
from stacks.prices.price_list import PriceList
from stacks.prices.rate import BilledParts

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
PRICES = PriceList(
    region="us-east-1", date="2026-01-01", instances={"big": 10.0, "small": 1.0},
    nat_gateway_hour=0.04, public_address_hour=0.005, gp3_gib_month=0.073, bucket_gb_month=0.02, efs_gb_month=0.365,
)  # fmt: skip


def activity(hour: float, description: str, *, end: float | None = None, status: str = "Successful") -> Activity:
    return Activity(
        time=START + timedelta(hours=hour), group="g", description=description, status=status, reason="",
        end=None if end is None else START + timedelta(hours=end),
    )  # fmt: skip


def launch(hour: float, name: str, status: str = "Successful") -> Activity:
    return activity(hour, f"Launching a new EC2 instance: {name}", status=status)


def termination(hour: float, name: str) -> Activity:
    return activity(hour - 0.5, f"Terminating EC2 instance: {name}", end=hour)


def test_file_system_is_priced_by_its_present_size() -> None:
    parts = BilledParts(node_counts={"small": 2}, volume_gib=100, nat_gateways=1, addresses=2, shared_gb=200)
    message = cost_so_far([], types={}, parts=parts, prices=PRICES, since=START, now=START + timedelta(hours=10))
    # 200 GB for ten hours of a 730-hour month.
    assert message.by_kind["shared_storage"] == pytest.approx(200 * 0.365 * 10 / 730)
    assert message.total == pytest.approx(0.4 + 0.1 + 1.0)


CLUSTERS = [
    # Never paused: two nodes for ten hours.
    ([launch(0, "i-1"), launch(0, "i-2")], {}, {"nodes": 20.0, "volumes": 20 * 0.01}),
    # Paused after four hours, resumed for the last hour; a launch failed in between and cost nothing.
    (
        [
            *(launch(0, "i-1"), launch(0, "i-2"), termination(4, "i-1"), termination(4, "i-2")),
            *(launch(8, "i-3", status="Failed"), launch(9, "i-4"), launch(9, "i-5")),
        ],
        {},
        {"nodes": 10.0, "volumes": 10 * 0.01},
    ),
    # A worker of another type since hour 8; EC2 has forgotten its predecessor, which had the template's type.
    ([launch(0, "i-1"), termination(8, "i-1"), launch(8, "i-2")], {"i-2": "big"}, {"nodes": 28.0, "volumes": 0.1}),
]


@pytest.mark.parametrize(("activities", "types", "expected"), CLUSTERS)
def test_spent_sums_the_cost_of_each_kind(
    activities: list[Activity], types: dict[str, str], expected: dict[str, float]
) -> None:
    parts = BilledParts(node_counts={"small": 2}, volume_gib=100, nat_gateways=1, addresses=2)
    now = START + timedelta(hours=10)
    found = cost_so_far(
        instance_lifetimes(reversed(activities)), types=types, parts=parts, prices=PRICES, since=START, now=now
    )
    expected = {**expected, "nat": 0.4, "addresses": 0.1}
    assert found.by_kind == pytest.approx(expected)
    assert found.total == pytest.approx(sum(expected.values()))


def test_type_without_a_price_has_no_sum() -> None:
    parts = BilledParts(node_counts={"odd": 1}, volume_gib=100, nat_gateways=0, addresses=1)
    found = cost_so_far(
        instance_lifetimes([launch(0, "i-1")]),
        types={},
        parts=parts,
        prices=PRICES,
        since=START,
        now=START + timedelta(hours=1),
    )
    assert (found.by_kind["nodes"], found.total, found.node_hours) == (None, None, 1.0)
