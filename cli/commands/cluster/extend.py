"""``dlcluster extend 8h``: postpone ``expires`` in cdk.json, and deploy."""

import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

import click

from bootstrap.contract import NODE_TYPES, NodeType
from cli.aws.clients import Clients, create_clients
from cli.aws.clusters import Cluster, find_cluster
from cli.cdk.context import cdk_option, read_context, read_props
from cli.cdk.deploy import set_and_deploy
from cli.command import cluster_command
from cli.errors import UsageError
from cli.node_groups.groups import read_groups, require_settled
from cli.output import json_option, print_json
from cli.shared_options import Selection, invocation
from stacks.settings.lifetime import DELETE, DELETE_AFTER
from stacks.settings.parsing import format_utc, parse_duration

SETTING: Final = "expires"
DEPLOY_TIME: Final = timedelta(minutes=10)
"""Time that a deploy may take, including the synth."""


@cluster_command(
    "extend",
    examples=("dlcluster extend 8h", "dlcluster extend 2d -c key_name=me", "dlcluster extend 90m --no-deploy"),
    argument_setting=SETTING,
)
@click.argument("time", metavar="TIME")
@click.option("--deploy/--no-deploy", default=True, help="Deploy after writing cdk.json (--deploy).")
@cdk_option
@json_option
def command(selection: Selection, *, time: str, deploy: bool, cdk_options: tuple[str, ...], as_json: bool) -> int:
    """Postpone a cluster's automatic pause by 90m, 8h or 2d: set expires in ./cdk.json, and deploy.

    The new time counts from the deployed one, or from now if that has passed or there is none. A paused cluster stays
    paused: use dlcluster resume. extend warns if the deployed end comes before the deploy is done. Run it in the
    directory of cdk deploy, with the same -c options.
    """
    more = parse_time(time)
    if any(pair.partition("=")[0] == SETTING for pair in cdk_options):
        raise UsageError(f"-c {SETTING} cannot be combined with the argument")
    props = read_props(read_context(Path.cwd(), cdk_options))
    if selection.cluster not in (None, props.cluster_name):
        raise UsageError(f"cdk.json is for cluster {props.cluster_name}, not for --cluster {selection.cluster}")
    clients = create_clients(selection.region)
    cluster = find_cluster(clients.cloudformation, name=props.cluster_name, region=clients.region)
    require_settled(cluster)
    # Do not use cdk.json, which an interrupted run may have changed: the next one must not add to that.
    now = datetime.now(timezone.utc)
    expires = format_utc(max(now, cluster.expires or now) + more)
    before = _paused(clients, cluster)
    if len(before) == len(NODE_TYPES):
        print(f"dlcluster: {cluster.name} is paused, and the deploy starts no node", file=sys.stderr)
    if cluster.expires is not None and now < cluster.expires < now + DEPLOY_TIME and not before:
        message = (
            f"dlcluster: {cluster.name} expires at {format_utc(cluster.expires)}, perhaps before the deploy is done"
        )
        print(f"{message}: its nodes may be terminated first", file=sys.stderr)
    if cluster.expires is not None and cluster.expiry_action == DELETE and cluster.expires <= now:
        message = (
            f"dlcluster: AWS deletes stack {cluster.stack_name} from {format_utc(cluster.expires + DELETE_AFTER)} on"
        )
        print(f"{message} (expiry_action delete), perhaps before a deploy has put that off", file=sys.stderr)
    set_and_deploy(SETTING, expires, cdk_options=cdk_options, region=clients.region, deploy=deploy)
    # The CDK has waited for the update's cleanup, which removes the old schedules.
    after = _paused(clients, cluster)
    if ended := after - before:
        message = f"the previous expiry passed during the deploy and paused {cluster.name} ({', '.join(sorted(ended))})"
        print(f"dlcluster: {message}; {invocation()} resume brings the nodes back", file=sys.stderr)
    if as_json:
        print_json(cluster=cluster.name, expires=expires, deployed=deploy, paused=len(after) == len(NODE_TYPES))
    else:
        print(expires)
    return 0


def _paused(clients: Clients, cluster: Cluster) -> set[NodeType]:
    """Return the types of the groups whose size is zero."""
    groups = read_groups(clients.autoscaling, cluster.name)
    return {node_type for node_type, group in groups.items() if group.size.is_paused}


def parse_time(text: str) -> timedelta:
    """Parse a length of time. Raises UsageError."""
    time = parse_duration(text)
    if time is None:
        raise UsageError(f"TIME must be like 90m, 8h or 2d, got {text[:60]!r}")
    return time
