"""Check the template of clusters whose nodes are bought as Spot or from a reservation."""

from collections.abc import Callable
from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks.template_parts import RESERVATION, Template, node_launch_data

Synthesize = Callable[..., Template]


def test_only_the_workers_are_spot_instances(synthesize: Synthesize) -> None:
    template = synthesize(purchase="spot", instance_type="g5.8xlarge")
    worker = node_launch_data(template, "Worker")["InstanceMarketOptions"]
    assert worker["MarketType"] == "spot"
    assert worker["SpotOptions"] == {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    assert "InstanceMarketOptions" not in node_launch_data(template, "Master")
    # A cluster placement group has the least spot capacity.
    assert "Placement" not in node_launch_data(template, "Worker")
    price = template["Outputs"]["PricePerHour"]["Value"]
    assert price.startswith("at most ")
    assert price.endswith("; spot prices vary)")


def test_every_node_uses_the_reservation_only(synthesize: Synthesize) -> None:
    template = synthesize(purchase="reservation", capacity_reservation=RESERVATION, instance_type="g5.8xlarge")
    wanted = {"CapacityReservationTarget": {"CapacityReservationId": RESERVATION}}
    for name in ("Master", "Worker"):
        assert node_launch_data(template, name)["CapacityReservationSpecification"] == wanted
        # EC2 refuses a market type beside a reservation's target, and a placement group for which it was not made.
        assert {"InstanceMarketOptions", "Placement"} & node_launch_data(template, name).keys() == set()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"purchase": "cheap"}, "purchase must be on-demand, spot, reservation or capacity-block, got 'cheap'"),
        ({"purchase": "SPOT"}, "purchase must be in lower case, got 'SPOT': did you mean spot?"),
        ({"purchase": "reservation"}, "purchase=reservation and capacity_reservation must be set together"),
        ({"purchase": "capacity-block"}, "purchase=capacity-block and capacity_reservation must be set together"),
        ({"capacity_reservation": RESERVATION}, "purchase=reservation and capacity_reservation must be set together"),
        (
            {"purchase": "reservation", "capacity_reservation": "mine"},
            "capacity_reservation must be cr- and 8 or 17 hex digits, got 'mine'",
        ),
    ],
)
def test_contradicting_purchase_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        ClusterProps(**settings)
    assert str(raised.value) == message
