"""Estimate a cluster's cost per hour: nodes, root volumes, NAT gateway, public addresses, the file system it created.

The bucket, logs and data transfer depend on use and are left out; docs/start/costs.md has their prices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stacks.prices.price_list import HOURS_PER_MONTH, PriceList
from stacks.settings.purchase import CAPACITY_BLOCK, ON_DEMAND, SPOT

if TYPE_CHECKING:
    from stacks.settings.props import ClusterProps

STORAGE: Final = "shared_storage"
KINDS: Final = ("nodes", "volumes", "nat", "addresses", STORAGE)
"""Kinds of cost in the order of display; the last is left out without a file system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BilledParts:
    """Parts of a cluster that cost money per hour."""

    node_counts: Mapping[str, int]
    """Number of nodes by instance type."""
    volume_gib: int
    """Size of each node's root volume."""
    nat_gateways: int
    addresses: int
    """Number of public addresses: the master's, and one per NAT gateway."""
    prepaid_type: str | None = None
    """Instance type whose nodes cost nothing per hour, because a Capacity Block is paid for at its purchase."""
    shared_gb: float | None = None
    """Metered size of the file system that the cluster created; None if there is none or the size is unknown."""

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return sum(self.node_counts.values())

    @property
    def usual_type(self) -> str:
        """Return the type of most nodes."""
        return max(self.node_counts, key=lambda name: self.node_counts[name])


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """US dollars per hour by kind."""

    nodes: float | None
    """Cost of the nodes; None if the price of the instance type is unknown."""
    volumes: float
    nat: float
    addresses: float
    shared_storage: float | None = None
    """Cost of the file system; None if none is counted."""

    @property
    def by_kind(self) -> dict[str, float | None]:
        """Return the cost of each kind, in the order of display."""
        return {kind: getattr(self, kind) for kind in KINDS if kind != STORAGE or self.shared_storage is not None}

    @property
    def total(self) -> float | None:
        """Return the sum; None if the price of the nodes is unknown."""
        return None if self.nodes is None else self.nodes + self.volumes + self.fixed

    @property
    def fixed(self) -> float:
        """Return the cost that remains while the cluster is paused."""
        return self.nat + self.addresses + (self.shared_storage or 0.0)


def declared_parts(props: "ClusterProps") -> BilledParts:
    """Return the billed parts of the cluster that these settings declare, with every node."""
    nat_gateways = 0 if props.vpc_id else 1
    return BilledParts(
        node_counts=props.node_counts,
        volume_gib=props.root_volume_gib,
        nat_gateways=nat_gateways,
        addresses=nat_gateways + (0 if props.private else 1),
        prepaid_type=props.instance_type if props.uses_capacity_block else None,
    )


def price_line(props: "ClusterProps", prices: PriceList) -> str:
    """Return the price of the declared cluster with every node, for display."""
    count = props.worker_count + 1
    rate = describe_rate(hourly_rate(declared_parts(props), prices), prices, purchase=props.purchase)
    return f"{count} node{'' if count == 1 else 's'} will cost {rate}"


def costs_by_use(props: "ClusterProps") -> str:
    """Name what a cluster costs besides its price per hour."""
    return f"bucket, {'shared storage, ' if props.creates_file_system else ''}logs and traffic"


def describe_rate(rate: Rate, prices: PriceList, *, purchase: str = ON_DEMAND) -> str:
    """Describe a cluster's cost per hour, for display; a spot instance never costs more than one on demand."""
    most = "at most " if purchase == SPOT else ""
    total = "an unknown price" if rate.total is None else f"{most}{rate.total:.2f} USD"
    notes = {SPOT: "; spot prices vary", CAPACITY_BLOCK: "; the Capacity Block is paid at its purchase"}
    return f"{total} an hour ({prices.describe()}{notes.get(purchase, '')})"


def hourly_rate(parts: BilledParts, prices: PriceList) -> Rate:
    """Return the parts' cost per hour."""
    running = {name: count for name, count in parts.node_counts.items() if count and name != parts.prepaid_type}
    known = [count * prices.instances[name] for name, count in running.items() if name in prices.instances]
    return Rate(
        nodes=sum(known) if len(known) == len(running) else None,
        volumes=parts.nodes * parts.volume_gib * prices.gp3_gib_month / HOURS_PER_MONTH,
        nat=parts.nat_gateways * prices.nat_gateway_hour,
        addresses=parts.addresses * prices.public_address_hour,
        shared_storage=storage_rate(parts, prices),
    )


def storage_rate(parts: BilledParts, prices: PriceList) -> float | None:
    """Return the file system's cost per hour; None without one."""
    return None if parts.shared_gb is None else parts.shared_gb * prices.efs_gb_month / HOURS_PER_MONTH
