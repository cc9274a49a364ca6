"""Check the template of clusters whose master has a different type."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks.template_parts import RESERVATION, Template, node_launch_data

Synthesize = Callable[..., Template]


def configured(launch: dict[str, Any], name: str) -> str:
    """Return a value of the node's configuration from the user data."""
    found = re.search(rf'"{name}": (\w+),', json.dumps(launch["UserData"]).replace('\\"', '"'))
    assert found is not None
    return found[1]


def test_master_of_its_own_type_shares_neither_fabric_nor_place_nor_reservation(synthesize: Synthesize) -> None:
    template = synthesize(instance_type="g5.8xlarge", master_instance_type="m7i.xlarge", worker_count=2)
    master, worker = (node_launch_data(template, name) for name in ("Master", "Worker"))
    assert (master["InstanceType"], worker["InstanceType"]) == ("m7i.xlarge", "g5.8xlarge")
    assert {"NetworkInterfaces", "Placement"} & master.keys() == set()
    assert {"NetworkInterfaces", "Placement"} <= worker.keys()
    names = ("master_trains", "gpu_count", "worker_gpu_count", "efa_interfaces")
    assert [configured(master, name) for name in names] == ["false", "0", "1", "0"]
    assert [configured(worker, name) for name in names] == ["false", "1", "1", "1"]
    assert template["Outputs"]["PricePerHour"]["Value"].startswith("5.20 USD")
    reserved = synthesize(
        purchase="reservation",
        capacity_reservation=RESERVATION,
        instance_type="g6.xlarge",
        master_instance_type="t3.large",
    )
    assert "CapacityReservationSpecification" not in node_launch_data(reserved, "Master")
    assert "CapacityReservationSpecification" in node_launch_data(reserved, "Worker")


def test_master_with_one_interface_gives_workers_with_several_a_public_way_in() -> None:
    assert ClusterProps(instance_type="p5.48xlarge").unreachable_master_reason is not None
    small_master = ClusterProps(instance_type="p5.48xlarge", master_instance_type="m7i.xlarge")
    assert small_master.unreachable_master_reason is None


@pytest.mark.parametrize(
    ("settings", "trains"),
    [
        ({}, True),
        ({"master_instance_type": "m7i.xlarge"}, False),
        ({"master_instance_type": "g6.xlarge"}, True),
        ({"master_trains": False}, False),
        ({"master_instance_type": "m7i.xlarge", "master_trains": True}, True),
    ],
    ids=str,
)
def test_master_of_the_workers_type_trains_unless_the_setting_is_false(
    settings: dict[str, object], *, trains: bool
) -> None:
    assert ClusterProps.from_context({"cluster": settings}).effective_master_trains is trains


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"master_instance_type": "m7ixlarge"}, "master_instance_type must be FAMILY.SIZE such as g6.xlarge"),
        ({"master_instance_type": "m7g.large"}, "master_instance_type 'm7g.large' is ARM and the default AMI"),
        (
            {"master_instance_type": "m7g.large", "ami": "ami-01234567"},
            "master_instance_type must be an x86_64 type, as both boot the image for instance_type g6.xlarge",
        ),
        ({"master_instance_type": "z9.huge"}, r"unknown master_instance_type 'z9.huge'.*any type goes with ami"),
        ({"master_instance_type": "t3.large", "worker_count": 0}, "worker_count must be at least 1 with a master that"),
        ({"master_trains": "maybe"}, "master_trains must be true or false, got 'maybe'"),
        (
            {"instance_type": "g5.8xlarge", "master_instance_type": "m7i.xlarge", "master_trains": True},
            "master_trains with efa needs EFA on both types or on none",
        ),
        ({"master_instance_type": "t3.large", "frameworks": "mxnet"}, "frameworks need a master that trains"),
    ],
    ids=str,
)
def test_unsuitable_master_is_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        ClusterProps.from_context({"cluster": settings})
