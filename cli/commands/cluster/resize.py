"""``dlcluster resize N``: change the number of workers in cdk.json, and deploy."""

import sys
from pathlib import Path

import click

from bootstrap.aws.group_sizes import ClusterSizes
from bootstrap.contract import WORKER
from cli.aws.clients import Clients, create_clients
from cli.aws.clusters import Cluster, find_cluster
from cli.aws.deployed_template import DeployedTemplate, read_template
from cli.cdk.context import cdk_option, read_context, read_props
from cli.cdk.deploy import set_and_deploy
from cli.command import cluster_command
from cli.costs.read import read_parts
from cli.errors import ClusterError, UsageError
from cli.node_groups.changes import SizeChange, describe
from cli.node_groups.confirm import confirm, warn_about_jobs_that_would_stop
from cli.node_groups.groups import read_groups, require_placed, require_settled, resume_groups, sizes_by_node_type
from cli.node_groups.waiting import wait_until_ready
from cli.output import json_option, print_json
from cli.shared_options import Selection, invocation
from stacks.prices.price_list import price_list
from stacks.prices.rate import describe_rate, hourly_rate

SETTING = "worker_count"


@cluster_command(
    "resize",
    examples=("dlcluster resize 3", "dlcluster resize 0 --yes", "dlcluster resize 4 -c key_name=me"),
    argument_setting=SETTING,
)
@click.argument("workers", metavar="WORKERS", type=click.IntRange(0))
@click.option("-y", "--yes", is_flag=True, help="Do not ask. The CDK still asks before it widens permissions.")
@click.option("--deploy/--no-deploy", default=True, help="Deploy after writing cdk.json (--deploy).")
@cdk_option
@json_option
def command(
    selection: Selection, *, workers: int, yes: bool, deploy: bool, cdk_options: tuple[str, ...], as_json: bool
) -> int:
    """Change the number of workers, the nodes besides the master: write ./cdk.json, print the changes, and deploy.

    Run it in the directory of cdk deploy, with the -c options of your deploys. The newest workers are terminated first.
    On a paused cluster the master starts too. A second run completes one that was interrupted.
    """
    if any(pair.partition("=")[0] == SETTING for pair in cdk_options):
        raise UsageError(f"-c {SETTING} cannot be combined with the argument")
    props = read_props(read_context(Path.cwd(), [*cdk_options, f"{SETTING}={workers}"]))
    if props.uses_capacity_block:
        raise UsageError("resize is not for a Capacity Block: change worker_count in cdk.json, cdk deploy, then resume")
    if selection.cluster not in (None, props.cluster_name):
        raise UsageError(f"cdk.json is for cluster {props.cluster_name}, not for --cluster {selection.cluster}")
    clients = create_clients(selection.region)
    cluster = find_cluster(clients.cloudformation, name=props.cluster_name, region=clients.region)
    require_settled(cluster)
    template = read_template(clients.cloudformation, cluster.stack_name)
    require_placed(cluster, template.sizes(cluster.name))
    groups = read_groups(clients.autoscaling, cluster.name)
    change = SizeChange(
        current=sizes_by_node_type(groups), old_template=template.sizes(cluster.name), new_template=props.initial_sizes
    )
    _print_change(change, clients, cluster, template)
    if change.is_refused:
        raise ClusterError(
            f"{SETTING} {workers} would be refused, nothing was changed: run {invocation()} resume first"
        )
    if deploy:
        if change.terminated and not yes:
            warn_about_jobs_that_would_stop(selection)
        confirm(
            f"continue with {workers} workers in {cluster.name}?",
            yes=yes,
            action=f"{cluster.name} in {clients.region}: changing to {workers} workers",
        )
    set_and_deploy(SETTING, workers, cdk_options=cdk_options, region=clients.region, deploy=deploy)
    if deploy and change.leaves_no_master:
        # CloudFormation may still show the state before the deploy, so the sizes are those of the settings.
        resume_groups(clients, cluster.name, change.new_template)
        # The deploy may have changed the setup, for which the wait allows.
        cluster = find_cluster(clients.cloudformation, name=cluster.name, region=clients.region)
        wait_until_ready(clients, cluster, change.new_template)
    if as_json:
        before = change.old_template[WORKER].desired_capacity
        print_json(cluster=cluster.name, worker_count=workers, deployed_worker_count=before, deployed=deploy)
    return 0


def _print_change(change: SizeChange, clients: Clients, cluster: Cluster, template: DeployedTemplate) -> None:
    """Print on stderr what the deploy changes, and the cost per hour before and after."""
    prices = price_list(clients.region)

    def cost(sizes: ClusterSizes) -> str:
        return describe_rate(hourly_rate(read_parts(clients, cluster, template, sizes), prices), prices)

    for line in (*describe(change), f"now {cost(change.current)}, then {cost(change.after_deploy)}"):
        print(f"dlcluster: {line}", file=sys.stderr)
