"""``dlcluster pause``: terminate all nodes of a cluster, and keep the cluster."""

import sys

import click

from cli.aws.clients import create_clients
from cli.aws.deployed_template import read_template
from cli.cluster_context import resolve_cluster
from cli.command import cluster_command
from cli.costs.parts import paused_line
from cli.costs.read import read_parts
from cli.node_groups.confirm import confirm, warn_about_jobs_that_would_stop
from cli.node_groups.groups import (
    instance_ids,
    is_paused,
    pause_groups,
    protected_instances,
    read_groups,
    require_settled,
    sizes_by_node_type,
    terminate_instances,
)
from cli.node_groups.waiting import GONE_TIMEOUT_S, wait_until_gone
from cli.output import json_option, print_json
from cli.shared_options import Selection, invocation
from stacks.prices.price_list import price_list
from stacks.prices.rate import hourly_rate


@cluster_command("pause", examples=("dlcluster pause", "dlcluster pause --yes --json", "dlcluster resume"))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def command(selection: Selection, *, yes: bool, as_json: bool) -> int:
    """Terminate all nodes, with everything on their disks, and keep the cluster: dlcluster resume brings nodes back.

    Running jobs end. The bucket, the network, the master's public address and the settings stay. cdk deploy changes
    them and starts nodes only if worker_count or min_workers has changed, or if it fails and is rolled back. Nodes in
    standby or protected from scale-in are named, and terminated too. A second run is harmless, and completes one that
    was interrupted.
    """
    clients = create_clients(selection.region)
    cluster = resolve_cluster(selection, clients)
    require_settled(cluster)
    groups = read_groups(clients.autoscaling, cluster.name)
    instances = instance_ids(groups)
    survivors = protected_instances(groups)
    if survivors or not is_paused(groups):
        for instance_id, reason in survivors.items():
            print(f"dlcluster: {instance_id} is {reason}, and is terminated too", file=sys.stderr)
        if instances:
            warn_about_jobs_that_would_stop(selection)
        advice = f"pull results first: {invocation()} pull"
        confirm(
            f"terminate all nodes of {cluster.name} ({len(instances)}) and erase their disks ({advice})?",
            yes=yes,
            action=f"{cluster.name} in {clients.region}: terminating all nodes ({len(instances)})",
        )
        pause_groups(clients, cluster.name)
        terminate_instances(clients, survivors)
    wait_until_gone(clients, cluster, timeout_s=GONE_TIMEOUT_S)
    prices = price_list(clients.region)
    template = read_template(clients.cloudformation, cluster.stack_name)
    rate = hourly_rate(read_parts(clients, cluster, template, sizes_by_node_type(groups)), prices)
    if as_json:
        print_json(
            cluster=cluster.name,
            region=clients.region,
            state="paused",
            terminated=instances,
            usd_per_hour=round(rate.fixed, 4),
        )
        return 0
    print(f"{cluster.name} is paused")
    print(f"dlcluster: it {paused_line(rate, prices)}", file=sys.stderr)
    print(f"dlcluster: {invocation()} resume brings its nodes back", file=sys.stderr)
    return 0
