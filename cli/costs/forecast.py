"""Forecast what a cluster will cost, up to its end if it has one."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from cli.aws.clusters import Cluster
from cli.costs.read import Cost
from stacks.settings.lifetime import DELETE, DELETE_AFTER
from stacks.settings.parsing import format_utc

FORECASTS: Final = (("a day", 24), ("a weekend", 64), ("a month", 730))
"""Periods to forecast, with their hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """Upcoming end of a cluster."""

    time: datetime
    hours: float
    """Hours until then."""
    deletes: bool
    """True if the stack is deleted after the pause."""

    @property
    def outcome(self) -> str:
        """Return the state of the cluster after its end."""
        return "deleted" if self.deletes else "paused"


def upcoming_end(cluster: Cluster) -> End | None:
    """Return the end; None if there is none or it has passed."""
    now = datetime.now(timezone.utc)
    if cluster.expires is None or cluster.expires <= now:
        return None
    hours = (cluster.expires - now) / timedelta(hours=1)
    return End(time=cluster.expires, hours=hours, deletes=cluster.expiry_action == DELETE)


def document(cost: Cost, end: End | None = None) -> dict[str, object]:
    """Return the cost as keys of a JSON object."""
    return {
        "usd_per_hour": cost.rate.total,
        "usd_per_hour_paused": cost.rate.fixed,
        "usd_per_hour_by_kind": cost.rate.by_kind,
        "since": format_utc(cost.so_far.since),
        "usd_spent": cost.so_far.total,
        "usd_spent_by_kind": dict(cost.so_far.by_kind),
        "node_hours": cost.so_far.node_hours,
        "prices": {"region": cost.prices.region, "date": cost.prices.date},
        "forecast": {str(hours): cost_ahead(cost, hours, end) for _, hours in FORECASTS},
        "expires": format_utc(end.time) if end else None,
        "usd_until_end": cost_ahead(cost, end.hours, end) if end else None,
    }


def cost_ahead(cost: Cost, hours: float, end: End | None) -> float | None:
    """Return the cost of the next hours: at the current rate until the end, then paused until the stack is deleted."""
    if cost.rate.total is None:
        return None
    running = hours if end is None else min(hours, end.hours)
    paused = hours - running
    if end is not None and end.deletes:
        paused = min(paused, DELETE_AFTER / timedelta(hours=1))
    return cost.rate.total * running + cost.rate.fixed * paused
