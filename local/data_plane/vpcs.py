"""Maintain a router for each VPC that has instances: its firewall, its instance metadata, its public addresses.

VPCs share nothing but the internet, so two of them may use the same private addresses.
"""

import functools
import logging
from collections.abc import Callable, Collection

from local.data_plane import firewall
from local.network import vpc_network
from local.network.addresses import ENDPOINT_SOURCES
from local.node import metadata
from local.node.inventory import Inventory
from local.storage.exports import Exports

log = logging.getLogger(__name__)
FindMetadata = Callable[[str, str], metadata.Metadata | None]
"""Function that returns the metadata of the instance with a private address in a VPC."""


class Vpcs:
    """Keeps routers equal to an inventory, by VPC."""

    def __init__(self, find_metadata: FindMetadata, exports: Exports) -> None:
        self._find_metadata = find_metadata
        self._exports = exports
        self._routers: dict[str, tuple[Callable[[], None], ...]] = {}
        """Per VPC, the functions that stop the router's metadata service and name server."""
        self._rules: dict[str, str] = {}
        self._routes: dict[str, str] = {}
        self._endpoint_sources: dict[str, str] = {}
        """By VPC: the address at which AWS's API sees the nodes that come through endpoints."""

    def reconcile(self, inventory: Inventory, *, occupied: Collection[str]) -> None:
        """Create missing routers, load changes, and remove the routers of VPCs without instances.

        ``occupied`` VPCs keep theirs, because they still have nodes.
        """
        desired = {instance.vpc_id for instance in inventory.instances}
        for vpc_id in sorted(desired - self._routers.keys()):
            self._create(vpc_id)
        sources = {vpc_id: self._endpoint_source(vpc_id) for vpc_id in sorted(desired & inventory.vpcs_with_endpoints)}
        for vpc_id in sorted(desired):
            self._load_rules(vpc_id, firewall.render_rules(inventory, vpc_id, endpoint_source=sources.get(vpc_id)))
        self._load_routes(public_addresses(inventory) | {source: vpc_id for vpc_id, source in sources.items()})
        self._exports.reconcile(inventory.mount_targets, vpcs=desired)
        for vpc_id in sorted(self._routers.keys() - desired - set(occupied)):
            self._delete(vpc_id)

    def _create(self, vpc_id: str) -> None:
        try:
            vpc_network.create_router(vpc_id)
            stop_names = self._exports.start_names(vpc_id)
            stop_metadata = metadata.start_server(vpc_id, functools.partial(self._find_metadata, vpc_id))
            self._routers[vpc_id] = (stop_metadata, stop_names)
        except BaseException:
            vpc_network.delete_router(vpc_id)
            raise
        log.info("%s has a router", vpc_id)

    def _delete(self, vpc_id: str) -> None:
        for stop in self._routers.pop(vpc_id):
            stop()
        self._rules.pop(vpc_id, None)
        self._endpoint_sources.pop(vpc_id, None)
        vpc_network.delete_router(vpc_id)
        log.info("%s has no instance any more", vpc_id)

    def _endpoint_source(self, vpc_id: str) -> str:
        """Return the VPC's address, which it keeps as long as it has a router."""
        if vpc_id not in self._endpoint_sources:
            taken = set(self._endpoint_sources.values())
            self._endpoint_sources[vpc_id] = next(a for a in map(str, ENDPOINT_SOURCES.hosts()) if a not in taken)
        return self._endpoint_sources[vpc_id]

    def _load_rules(self, vpc_id: str, rules: str) -> None:
        if self._rules.get(vpc_id) != rules:
            vpc_network.run_nft(vpc_id, rules)
            self._rules[vpc_id] = rules

    def _load_routes(self, routes: dict[str, str]) -> None:
        if self._routes != routes:
            vpc_network.load_routes(routes, previous=self._routes)
            self._routes = routes


def public_addresses(inventory: Inventory) -> dict[str, str]:
    """Map each public address, NAT gateways' included, to its VPC; skip those without a route to the internet."""
    return {i.internet_address: i.vpc_id for i in inventory.instances if i.internet_address}
