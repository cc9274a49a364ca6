"""Calculate what a cluster has cost since its deploy, by kind, from Auto Scaling's launches and terminations.

Instances count from their launch to their end. Auto Scaling reports the last six weeks; anything older is reported as
unknown, not guessed. The bucket, logs and data transfer are not included.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cli.aws.scaling import Activity
from stacks.prices.price_list import HOURS_PER_MONTH, PriceList
from stacks.prices.rate import STORAGE, BilledParts, storage_rate

_LAUNCH: Final = re.compile(r"Launching a new EC2 instance: (i-[0-9a-f]+)")
_END: Final = re.compile(r"Terminating EC2 instance: (i-[0-9a-f]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceLifetime:
    """Lifetime of one instance."""

    instance_id: str
    start: datetime
    end: datetime | None
    """End of the instance; None while it runs."""

    def hours(self, now: datetime) -> float:
        """Return the hours until its end or, while it runs, until now."""
        return max((self.end or now) - self.start, timedelta()) / timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class CostSoFar:
    """US dollars since the deploy by kind."""

    since: datetime
    by_kind: Mapping[str, float | None]
    """Amount by kind; None for the nodes if their type's price is unknown."""
    node_hours: float

    @property
    def total(self) -> float | None:
        """Return the sum; None if a part of it is unknown."""
        known = [amount for amount in self.by_kind.values() if amount is not None]
        return sum(known) if len(known) == len(self.by_kind) else None


def instance_lifetimes(activities: Iterable[Activity]) -> list[InstanceLifetime]:
    """Return the lifetime of each launched instance; a failed launch costs nothing."""
    started: dict[str, datetime] = {}
    ended: dict[str, datetime] = {}
    for activity in activities:
        if (launch := _LAUNCH.match(activity.description)) and not activity.is_failure:
            started[launch[1]] = activity.time
        elif (end := _END.match(activity.description)) and not activity.is_failure:
            ended[end[1]] = activity.end or activity.time
    return [
        InstanceLifetime(instance_id=name, start=start, end=ended.get(name)) for name, start in sorted(started.items())
    ]


def cost_so_far(
    lifetimes: Sequence[InstanceLifetime],
    *,
    types: Mapping[str, str],
    parts: BilledParts,
    prices: PriceList,
    since: datetime,
    now: datetime,
) -> CostSoFar:
    """Return the cost of all instances, and of the parts that have run since the deploy.

    `types` has the type of each instance that EC2 still knows; the others count as the template's type.
    """
    hours = {lifetime.instance_id: lifetime.hours(now) for lifetime in lifetimes}
    node_types = [types.get(instance_id, parts.usual_type) for instance_id in hours]
    node_prices = [
        0.0 if node_type == parts.prepaid_type else prices.instances.get(node_type) for node_type in node_types
    ]
    known_prices = [price for price in node_prices if price is not None]
    stack_hours = (now - since) / timedelta(hours=1)
    costs: dict[str, float | None] = {
        "nodes": sum(price * node_hours for price, node_hours in zip(known_prices, hours.values(), strict=True))
        if len(known_prices) == len(node_prices)
        else None,
        "volumes": sum(hours.values()) * parts.volume_gib * prices.gp3_gib_month / HOURS_PER_MONTH,
        "nat": stack_hours * parts.nat_gateways * prices.nat_gateway_hour,
        "addresses": stack_hours * parts.addresses * prices.public_address_hour,
    }
    if (storage := storage_rate(parts, prices)) is not None:
        # AWS keeps no history of the size, so assume the current size throughout.
        costs[STORAGE] = stack_hours * storage
    return CostSoFar(since=since, by_kind=costs, node_hours=sum(hours.values()))
