"""``dlcluster up``: start the complete fleet in the first candidate zone with capacity for it, or nothing."""

import sys
from pathlib import Path

import click

from cli.aws.clients import create_clients
from cli.cdk.context import cdk_option, read_context, read_props
from cli.cluster_lock import Lock
from cli.command import cluster_command
from cli.node_groups.confirm import confirm
from cli.node_groups.waiting import READY_TIMEOUT_S, wait_until_ready
from cli.output import json_option, print_json, print_table
from cli.preflight.target import PreflightTarget
from cli.shared_options import Selection
from cli.up import requirements
from cli.up.recovery import running_zone
from cli.up.report import print_cost, scores_line
from cli.up.start_fleet import start_fleet_in_first_zone
from cli.up.zone_deployer import SETTLE_TIMEOUT_S, ZoneDeployer
from cli.up.zone_search import search_end
from stacks.prices.price_list import price_list


@cluster_command("up", examples=("dlcluster up", "dlcluster up --until 18:00 --yes", "dlcluster up -c worker_count=7"))
@click.option("--by-spot-score", is_flag=True, help="Try the zones with the best spot placement score first.")
@click.option("--until", metavar="HH:MM", default="", help="Try all zones again until this time of the day.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(0),
    help=f"Seconds to wait for the nodes (default: {READY_TIMEOUT_S:.0f} plus setup_timeout).",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask. The CDK still asks before it widens permissions.")
@cdk_option
@json_option
def command(
    selection: Selection,
    *,
    by_spot_score: bool,
    until: str,
    timeout: float | None,
    yes: bool,
    cdk_options: tuple[str, ...],
    as_json: bool,
) -> int:
    """Deploy, and start all nodes in the first zone of the setting zones with capacity for the complete fleet.

    A zone that gives fewer nodes keeps none. Once all nodes are up, the zone is written to cdk.json as
    availability_zone, and up waits until every node is ready. A second run is harmless, and completes one that was
    interrupted; on a paused cluster it searches for capacity again. Run it in the directory of cdk deploy.
    """
    settings = read_context(Path.cwd(), cdk_options)
    props = read_props(settings)
    end = search_end(until)
    requirements.require_zones(props, cdk_options, cluster=selection.cluster)
    if by_spot_score:
        requirements.require_spot(props)
    clients = create_clients(selection.region)
    target = PreflightTarget.of(clients, props, settings)
    prices = price_list(clients.region)
    lock = Lock(clients=clients, name=props.cluster_name, caller=target.caller)
    deployer = ZoneDeployer(
        clients=clients,
        name=props.cluster_name,
        zones=props.zones,
        lock=lock,
        cdk_options=cdk_options,
        settle_timeout_s=SETTLE_TIMEOUT_S + (props.setup_timeout_s or 0),
    )
    zones_without_type: dict[str, str] = {}
    scores: dict[str, int] | None = None
    if zone := running_zone(deployer, props.fleet_sizes):
        print(f"dlcluster: already running in {zone}; cdk deploy applies other settings", file=sys.stderr)
    else:
        zones_without_type = requirements.zones_without_type(target, props.zones)
        requirements.require_quota(target)
        if by_spot_score:
            scores = requirements.spot_scores(clients, props)
        if scores is not None:
            print(f"dlcluster: {scores_line(requirements.sort_by_score(props.zones, scores), scores)}", file=sys.stderr)
        print_cost(props, prices, end)
        zones = " or ".join(props.zones)
        confirm(f"continue with {zones}?", yes=yes, action=f"{props.cluster_name}: starting it in {zones}")
    # A running fleet needs no start: this only writes its zone to cdk.json.
    zone = start_fleet_in_first_zone(deployer, props, zones_without_type, until=end, prices=prices, scores=scores)
    cluster = deployer.find_cluster()
    members = wait_until_ready(clients, cluster, props.fleet_sizes, timeout_s=timeout)
    if as_json:
        nodes = [{"index": member.node_index, "instance_id": member.instance_id} for member in members]
        rate = requirements.fleet_rate(props, prices)
        print_json(cluster=cluster.name, region=clients.region, zone=zone, nodes=nodes, usd_per_hour=rate.total)
        return 0
    print(f"{cluster.name} is running in {zone}: {len(members)} nodes")
    print_table(("INDEX", "NODE", "INSTANCE"), [(str(m.node_index), m.short_name, m.instance_id) for m in members])
    return 0
