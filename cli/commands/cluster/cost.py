"""``dlcluster cost``: show a cluster's cost per hour, its cost so far, and a forecast."""

import click

from cli.aws.clients import create_clients
from cli.cluster_context import resolve_cluster
from cli.command import cluster_command
from cli.costs.amounts import dollars, dollars_by_kind
from cli.costs.forecast import FORECASTS, cost_ahead, document, upcoming_end
from cli.costs.read import read_cost
from cli.output import json_option, print_json, print_table
from cli.shared_options import Selection
from stacks.settings.parsing import format_utc


@cluster_command("cost", examples=("dlcluster cost", "dlcluster cost --forecast", "dlcluster cost --json"))
@click.option("--forecast", is_flag=True, help="Add what a day, a weekend (64 h) and a month cost, up to its end.")
@json_option
def command(selection: Selection, *, forecast: bool, as_json: bool) -> int:
    """Show a cluster's cost per hour, and its cost since its deploy, by list prices.

    The cost includes nodes, their root volumes, the NAT gateway, public addresses and the file system that the cluster
    made; not the bucket, logs and traffic, for which see docs/start/costs.md. AWS's bill differs by discounts and
    taxes.
    """
    clients = create_clients(selection.region)
    cluster = resolve_cluster(selection, clients)
    cost = read_cost(clients, cluster)
    end = upcoming_end(cluster)
    if as_json:
        print_json(cluster=cluster.name, region=clients.region, **document(cost, end))
        return 0
    spent = dollars_by_kind(cost.so_far.by_kind)
    rows = [(kind, amount, spent[kind]) for kind, amount in dollars_by_kind(cost.rate.by_kind).items()]
    print_table(("KIND", "USD/HOUR", "SPENT"), [*rows, ("total", dollars(cost.rate.total), dollars(cost.so_far.total))])
    print(f"spent since {cost.so_far.since:%Y-%m-%d %H:%M} UTC, {cost.so_far.node_hours:.1f} node hours")
    print(f"{cost.prices.describe()}, US dollars; {cost.not_counted}")
    if forecast:
        if end is not None:
            message = f"until its end at {format_utc(end.time)} ({end.hours:.1f} h)"
            print(f"{message} as it is now: {dollars(cost_ahead(cost, end.hours, end))}")
        for name, hours in FORECASTS:
            what = f"{end.outcome} after its end" if end is not None and end.hours < hours else "as it is now"
            print(f"{name} ({hours} h) {what}: {dollars(cost_ahead(cost, hours, end))}")
    return 0
