"""Start the fleet in the first zone with capacity and record the zone, or report what was tried and what is left."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import NoReturn

from cli.cluster_lock import LockHeldError
from cli.costs.parts import paused_line
from cli.errors import ClusterError
from cli.node_groups.groups import instance_ids, is_paused, read_groups
from cli.output import printable
from cli.signals import interruptible
from cli.up.attempt import recorded_attempt
from cli.up.fleet import ZoneOutcome
from cli.up.recovery import OtherSizesError, recover
from cli.up.report import cost_of_failed_attempts, ended_line, table
from cli.up.requirements import fleet_rate, sort_by_score
from cli.up.zone_deployer import ZoneDeployer
from cli.up.zone_search import ZoneSearch
from stacks.prices.price_list import PriceList
from stacks.settings.props import ClusterProps


@interruptible()
def start_fleet_in_first_zone(
    deployer: ZoneDeployer,
    props: ClusterProps,
    zones_without_type: Mapping[str, str],
    *,
    until: datetime | None,
    prices: PriceList,
    scores: Mapping[str, int] | None = None,
) -> str:
    """Launch every node in the first zone with capacity for all, and deploy there; return the zone.

    `zones_without_type` maps a zone to the reason. If `scores` is given, try the zones in descending order of score,
    otherwise in the order of the settings.

    Raises ClusterError if no zone has capacity; no node is left then. After any other error nodes may be left, and a
    line says so.
    """
    try:
        zone = _start(deployer, props, zones_without_type, until=until, prices=prices, scores=scores)
    except BaseException as error:
        if not isinstance(error, (LockHeldError, OtherSizesError)):
            _warn_of_cost(deployer, props, prices)
        if isinstance(error, (Exception, KeyboardInterrupt)):
            deployer.lock.release()
        raise
    deployer.lock.release()
    return zone


def _start(
    deployer: ZoneDeployer,
    props: ClusterProps,
    zones_without_type: Mapping[str, str],
    *,
    until: datetime | None,
    prices: PriceList,
    scores: Mapping[str, int] | None,
) -> str:
    resume_point = recover(deployer, props.fleet_sizes)
    if resume_point.is_declared:
        deployer.write_zone(resume_point.zone)
        return resume_point.zone
    zone = resume_point.zone
    if not resume_point.is_complete:
        zones = sort_by_score([zone for zone in props.zones if zone not in zones_without_type], scores or {})
        search = ZoneSearch(deployer=deployer, declared=props.fleet_sizes, zones=zones, until=until)
        tried: list[ZoneOutcome] = []
        for outcome in search.run(resume_point.zone):
            tried.append(outcome)
            if not outcome.is_complete:
                print(f"dlcluster: {printable(ended_line(outcome, props, prices))}", file=sys.stderr)
        if not tried[-1].is_complete:
            _raise_no_capacity(tried, zones_without_type, props, prices, until=until, scores=scores)
        zone = tried[-1].zone
    print(f"dlcluster: all {props.worker_count + 1} nodes are launched in {zone}", file=sys.stderr)
    deployer.deploy_in(zone)
    return zone


def _warn_of_cost(deployer: ZoneDeployer, props: ClusterProps, prices: PriceList) -> None:
    """Warn of anything that may keep costing money, unless AWS confirms that nothing does."""
    with suppress(Exception):
        try:
            groups = read_groups(deployer.clients.autoscaling, deployer.name)
        except ClusterError:
            return  # the groups do not exist yet
        if is_paused(groups) and not instance_ids(groups) and recorded_attempt(groups) is None:
            return
    total = fleet_rate(props, prices).total
    rate = "an unknown price" if total is None else f"{total:.2f} USD"
    print(
        f"dlcluster: up to {props.worker_count + 1} nodes may be running at {rate} an hour: "
        "run dlcluster up again to continue, or dlcluster pause to terminate them",
        file=sys.stderr,
    )


def _raise_no_capacity(
    tried: list[ZoneOutcome],
    zones_without_type: Mapping[str, str],
    props: ClusterProps,
    prices: PriceList,
    *,
    until: datetime | None,
    scores: Mapping[str, int] | None,
) -> NoReturn:
    print(printable(table(tried, zones_without_type, scores), keep="\n"), end="", file=sys.stderr)
    costs = paused_line(fleet_rate(props, prices), prices, has_unmetered_storage=props.creates_file_system)
    left = f"{props.cluster_name} has no nodes and {costs}"
    left += cost_of_failed_attempts(tried, props, prices)
    if tried[-1].is_final:
        raise ClusterError(f"no other zone would help: {tried[-1].reason}; {left}")
    when = f" until {until:%H:%M}" if until else ", and --until tries again"
    raise ClusterError(f"no zone had capacity for all {props.worker_count + 1} nodes{when}; {left}")
