"""``dlcluster cost``: show a cluster's cost per hour, its cost so far, and a forecast."""

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

import click

from cli.aws.clients import connect
from cli.aws.clusters import Cluster, find_cluster
from cli.costs.amounts import dollars, dollars_by_kind
from cli.costs.read import Cost, read_cost
from cli.output import json_option, print_json, print_table
from cli.shared_options import Selection
from cli.verb import verb
from stacks.settings.lifetime import DELETE, DELETE_AFTER, iso

FORECASTS: Final = (("a day", 24), ("a weekend", 64), ("a month", 730))
"""Periods to forecast, with their hours."""


@verb("cost", examples=("dlcluster cost", "dlcluster cost --forecast", "dlcluster cost --json"))
@click.option("--forecast", is_flag=True, help="Add what a day, a weekend (64 h) and a month cost, up to its end.")
@json_option
def command(selection: Selection, *, forecast: bool, as_json: bool) -> int:
    """Show a cluster's cost per hour, and its cost since its deploy, by list prices.

    The cost includes nodes, their root volumes, the NAT gateway, public addresses and the file system that the cluster
    made; not the bucket, logs and traffic, for which see docs/start/costs.md. AWS's bill differs by discounts and
    taxes.
    """
    clients = connect(selection.region)
    cluster = find_cluster(clients.cloudformation, name=selection.cluster, region=clients.region)
    cost = read_cost(clients, cluster)
    end = _end(cluster)
    if as_json:
        print_json(cluster=cluster.name, region=clients.region, **document(cost, end))
        return 0
    spent = dollars_by_kind(cost.spent.by_kind)
    rows = [(kind, amount, spent[kind]) for kind, amount in dollars_by_kind(cost.rate.by_kind).items()]
    print_table(("KIND", "USD/HOUR", "SPENT"), [*rows, ("total", dollars(cost.rate.total), dollars(cost.spent.total))])
    print(f"spent since {cost.spent.since:%Y-%m-%d %H:%M} UTC, {cost.spent.node_hours:.1f} node hours")
    print(f"{cost.prices.describe()}, US dollars; {cost.not_counted}")
    if forecast:
        if end is not None:
            message = f"until its end at {iso(end.time)} ({end.hours:.1f} h)"
            print(f"{message} as it is now: {dollars(_ahead(cost, end.hours, end))}")
        for name, hours in FORECASTS:
            what = f"{end.outcome} after its end" if end is not None and end.hours < hours else "as it is now"
            print(f"{name} ({hours} h) {what}: {dollars(_ahead(cost, hours, end))}")
    return 0


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


def _end(cluster: Cluster) -> End | None:
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
        "usd_per_hour_paused": cost.rate.paused,
        "usd_per_hour_by_kind": cost.rate.by_kind,
        "since": f"{cost.spent.since:%Y-%m-%dT%H:%M:%SZ}",
        "usd_spent": cost.spent.total,
        "usd_spent_by_kind": dict(cost.spent.by_kind),
        "node_hours": cost.spent.node_hours,
        "prices": {"region": cost.prices.region, "date": cost.prices.date},
        "forecast": {str(hours): _ahead(cost, hours, end) for _, hours in FORECASTS},
        "expires": iso(end.time) if end else None,
        "usd_until_end": _ahead(cost, end.hours, end) if end else None,
    }


def _ahead(cost: Cost, hours: float, end: End | None) -> float | None:
    """Return the cost of the next hours: at the current rate until the end, then paused until the stack is deleted."""
    if cost.rate.total is None:
        return None
    running = hours if end is None else min(hours, end.hours)
    paused = hours - running
    if end is not None and end.deletes:
        paused = min(paused, DELETE_AFTER / timedelta(hours=1))
    return cost.rate.total * running + cost.rate.paused * paused
