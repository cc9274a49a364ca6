"""Test that each VPC with instances has a router, and the internet has a route to it."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from local.data_plane.vpcs import Vpcs, public_addresses
from local.network import vpc_network
from local.node import metadata
from local.node.inventory import Instance, Inventory
from local.storage import exports
from local.storage.exports import Exports
from tests.local.instances import instance

ONE = instance(4, groups=(), public="198.18.0.4", internet="198.18.0.4")
TWIN = dataclasses.replace(ONE, vpc_id="vpc-2", public_address="198.18.0.5", internet_address="198.18.0.5")
LONELY = dataclasses.replace(ONE, vpc_id="vpc-3", internet_address=None)


@pytest.fixture
def actions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the record of changes to the network, in order."""
    actions: list[str] = []

    def serve(vpc_id: str, _find: Any) -> Any:
        actions.append(f"metadata {vpc_id}")
        return lambda: actions.append(f"no metadata {vpc_id}")

    def load_routes(routes: dict[str, str], *, previous: dict[str, str]) -> None:
        actions.append(f"routes {sorted(routes.items())} for {sorted(previous.items())}")

    monkeypatch.setattr(vpc_network, "create_router", lambda vpc_id: actions.append(f"create {vpc_id}"))
    monkeypatch.setattr(vpc_network, "delete_router", lambda vpc_id: actions.append(f"delete {vpc_id}"))
    monkeypatch.setattr(vpc_network, "run_nft", lambda vpc_id, _rules: actions.append(f"rules {vpc_id}"))
    monkeypatch.setattr(vpc_network, "load_routes", load_routes)
    monkeypatch.setattr(metadata, "start_server", serve)
    monkeypatch.setattr(exports, "start_name_server", lambda _vpc_id, _find: lambda: None)
    return actions


def inventory(*instances: Instance) -> Inventory:
    return Inventory(instances=instances, security_groups=())


def test_router_exists_from_the_first_instance_to_the_last(actions: list[str], tmp_path: Path) -> None:
    vpcs = Vpcs(lambda _vpc_id, _address: None, Exports(tmp_path))
    vpcs.reconcile(inventory(ONE), occupied=())
    assert actions == ["create vpc-1", "metadata vpc-1", "rules vpc-1", "routes [('198.18.0.4', 'vpc-1')] for []"]
    actions.clear()
    vpcs.reconcile(inventory(ONE), occupied=())
    assert actions == []
    vpcs.reconcile(inventory(TWIN), occupied={"vpc-1"})
    assert "delete vpc-1" not in actions
    actions.clear()
    vpcs.reconcile(inventory(TWIN), occupied=())
    assert actions == ["no metadata vpc-1", "delete vpc-1"]


def test_router_that_cannot_be_served_is_not_left_behind(
    actions: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_vpc_id: str, _find: Any) -> Any:
        raise OSError("no address")

    monkeypatch.setattr(metadata, "start_server", refuse)
    with pytest.raises(OSError, match="no address"):
        Vpcs(lambda _vpc_id, _address: None, Exports(tmp_path)).reconcile(inventory(ONE), occupied=())
    assert actions == ["create vpc-1", "delete vpc-1"]


def test_public_addresses_lead_to_their_vpcs_where_a_route_leads_out() -> None:
    assert public_addresses(inventory(ONE, TWIN, LONELY)) == {"198.18.0.4": "vpc-1", "198.18.0.5": "vpc-2"}


def test_nodes_behind_endpoints_come_from_an_address_of_their_vpc(actions: list[str], tmp_path: Path) -> None:
    # A router that comes again has lost its route, so that this must go with it.
    vpcs = Vpcs(lambda _vpc_id, _address: None, Exports(tmp_path))
    with_endpoints = dataclasses.replace(inventory(LONELY), vpcs_with_endpoints=frozenset({"vpc-1", "vpc-3"}))
    vpcs.reconcile(with_endpoints, occupied=())
    assert actions[-1] == "routes [('192.0.2.129', 'vpc-3')] for []"
    vpcs.reconcile(inventory(), occupied=())
    vpcs.reconcile(with_endpoints, occupied=())
    assert actions[-4:] == ["create vpc-3", "metadata vpc-3", "rules vpc-3", "routes [('192.0.2.129', 'vpc-3')] for []"]
