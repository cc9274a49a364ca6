"""``dlcluster resume``: bring the nodes of a paused cluster back."""

import sys
from datetime import datetime, timezone

import click

from bootstrap.contract import NODE_TYPES
from cli.aws.clients import create_clients
from cli.aws.clusters import Cluster
from cli.aws.deployed_template import read_template
from cli.cluster_context import resolve_cluster
from cli.command import cluster_command
from cli.costs.read import read_parts
from cli.errors import ClusterError
from cli.node_groups.groups import read_groups, require_placed, require_settled, resume_groups, sizes_by_node_type
from cli.node_groups.waiting import READY_TIMEOUT_S, wait_until_ready
from cli.output import json_option, print_json, print_table
from cli.reports.capacity_block import parse_deployed_block
from cli.shared_options import Selection, invocation
from stacks.prices.price_list import price_list
from stacks.prices.rate import describe_rate, hourly_rate
from stacks.settings.parsing import format_utc


@cluster_command("resume", examples=("dlcluster resume", "dlcluster resume --timeout 3600 --json"))
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help=f"Seconds to wait for the nodes (default: {READY_TIMEOUT_S:.0f} plus setup_timeout).",
)
@json_option
def command(selection: Selection, *, timeout: float | None, as_json: bool) -> int:
    """Restore both groups to the sizes of the last deploy, and wait until every node is ready under its number.

    The nodes are new machines: their disks are as after a deploy. A second run is harmless, and completes one that was
    interrupted.
    """
    clients = create_clients(selection.region)
    cluster = resolve_cluster(selection, clients)
    require_settled(cluster)
    if cluster.expires is not None and cluster.expires <= datetime.now(timezone.utc):
        raise ClusterError(
            f"{cluster.name} expired at {format_utc(cluster.expires)} and would be paused again: "
            f"{invocation()} extend 8h"
        )
    _require_block(cluster)
    template = read_template(clients.cloudformation, cluster.stack_name)
    declared = template.declared_sizes(cluster.name)
    require_placed(cluster, declared)
    prices = price_list(clients.region)
    rate = hourly_rate(read_parts(clients, cluster, template, declared), prices)
    if sizes_by_node_type(read_groups(clients.autoscaling, cluster.name)) != declared:
        nodes = sum(declared[node_type].desired_capacity for node_type in NODE_TYPES)
        print(f"dlcluster: {nodes} nodes will cost {describe_rate(rate, prices)}", file=sys.stderr)
        resume_groups(clients, cluster.name, declared)
    members = wait_until_ready(clients, cluster, declared, timeout_s=timeout)
    if as_json:
        nodes_told = [{"index": member.node_index, "instance_id": member.instance_id} for member in members]
        print_json(
            cluster=cluster.name, region=clients.region, state="running", nodes=nodes_told, usd_per_hour=rate.total
        )
        return 0
    print(f"{cluster.name} is running: {len(members)} nodes")
    print_table(("INDEX", "NODE", "INSTANCE"), [(str(m.node_index), m.short_name, m.instance_id) for m in members])
    return 0


def _require_block(cluster: Cluster) -> None:
    """Refuse outside of the cluster's Capacity Block, because EC2 would launch nothing. Raises ClusterError."""
    block, now = parse_deployed_block(cluster.capacity_block), datetime.now(timezone.utc)
    if block is not None and not block.starts_at <= now < block.pauses_at:
        raise ClusterError(f"{cluster.name} has no capacity now: {block.line(now)}")
