"""``dlcluster cost``: show a cluster's cost per hour, its cost so far, and a forecast."""

from typing import Final

import click

from cli.aws.clients import connect
from cli.aws.clusters import find_cluster
from cli.costs.read import Cost, dollars, read_cost
from cli.output import json_option, print_json, print_table
from cli.shared_options import Selection
from cli.verb import verb
from stacks.prices.rate import KINDS

FORECASTS: Final = (("a day", 24), ("a weekend", 64), ("a month", 730))
"""Times, with their hours, for which a forecast is made."""


@verb("cost", examples=("dlcluster cost", "dlcluster cost --forecast", "dlcluster cost --json"))
@click.option("--forecast", is_flag=True, help="Add what a day, a weekend (64 h) and a month cost as it is now.")
@json_option
def command(selection: Selection, *, forecast: bool, as_json: bool) -> int:
    """Show a cluster's cost per hour, and its cost since its deploy, by list prices.

    Counted are nodes, their root volumes, the NAT gateway and public addresses: not the bucket, logs and traffic, which
    docs/start/costs.md has. AWS's bill differs by discounts and taxes.
    """
    clients = connect(selection.region)
    cluster = find_cluster(clients.cloudformation, name=selection.cluster, region=clients.region)
    cost = read_cost(clients, cluster)
    if as_json:
        print_json(cluster=cluster.name, region=clients.region, **document(cost))
        return 0
    an_hour = {kind: getattr(cost.rate, kind) for kind in KINDS}
    rows = [(kind, dollars(an_hour[kind]), dollars(cost.spent.by_kind[kind])) for kind in KINDS]
    print_table(("KIND", "USD/HOUR", "SPENT"), [*rows, ("total", dollars(cost.rate.total), dollars(cost.spent.total))])
    print(f"spent since {cost.spent.since:%Y-%m-%d %H:%M} UTC, {cost.spent.node_hours:.1f} node hours")
    print(f"{cost.prices.describe()}, US dollars; without bucket, logs and traffic")
    if forecast:
        for name, hours in FORECASTS:
            print(f"{name} ({hours} h) as it is now: {dollars(_ahead(cost, hours))}")
    return 0


def document(cost: Cost) -> dict[str, object]:
    """Return the cost as parts of a JSON object."""
    return {
        "usd_per_hour": cost.rate.total,
        "usd_per_hour_paused": cost.rate.paused,
        "usd_per_hour_by_kind": {kind: getattr(cost.rate, kind) for kind in KINDS},
        "since": f"{cost.spent.since:%Y-%m-%dT%H:%M:%SZ}",
        "usd_spent": cost.spent.total,
        "usd_spent_by_kind": dict(cost.spent.by_kind),
        "node_hours": cost.spent.node_hours,
        "prices": {"region": cost.prices.region, "date": cost.prices.date},
        "forecast": {str(hours): _ahead(cost, hours) for _, hours in FORECASTS},
    }


def _ahead(cost: Cost, hours: float) -> float | None:
    return None if cost.rate.total is None else cost.rate.total * hours
