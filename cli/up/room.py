"""Find room for the fleet, write its zone down, and say what was tried and what is left when there is none."""

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import NoReturn

from cli.costs.parts import paused_line
from cli.errors import ClusterError
from cli.output import printable
from cli.up.before import fleet_rate
from cli.up.fleet import Outcome
from cli.up.placement import Placement
from cli.up.recovery import recover
from cli.up.report import ended_line, table
from cli.up.search import Search
from stacks.prices.price_list import PriceList
from stacks.settings.props import ClusterProps


def find_room(
    placement: Placement, props: ClusterProps, lacking: Mapping[str, str], *, until: datetime | None, prices: PriceList
) -> str:
    """Return the zone in which every node was launched; ``lacking`` are the zones without the type.

    Raises ClusterError if no zone has room. No node is left then, and neither is one after any other error.
    """
    found = recover(placement, props.fleet_sizes)
    if found.is_kept:
        placement.remember(found.zone)
        return found.zone
    zone = found.zone
    if not found.is_whole:
        zones = [each for each in props.zones if each not in lacking]
        search = Search(placement=placement, declared=props.fleet_sizes, zones=zones, until=until)
        tried: list[Outcome] = []
        try:
            for outcome in search.run(found.zone):
                tried.append(outcome)
                if not outcome.is_whole:
                    print(f"dlcluster: {printable(ended_line(outcome, props, prices))}", file=sys.stderr)
        except KeyboardInterrupt:
            print("dlcluster: nodes may be left: dlcluster up goes on, dlcluster pause ends them", file=sys.stderr)
            raise
        if not tried[-1].is_whole:
            _refuse(tried, lacking, props, prices, until=until)
        zone = tried[-1].zone
    print(f"dlcluster: all {props.worker_count + 1} nodes are launched in {zone}", file=sys.stderr)
    placement.keep(zone)
    return zone


def _refuse(
    tried: list[Outcome],
    lacking: Mapping[str, str],
    props: ClusterProps,
    prices: PriceList,
    *,
    until: datetime | None,
) -> NoReturn:
    print(printable(table(tried, lacking), keep="\n"), end="", file=sys.stderr)
    left = f"{props.cluster_name} has no nodes and {paused_line(fleet_rate(props, prices), prices)}"
    if tried[-1].is_final:
        raise ClusterError(f"no other zone would help: {tried[-1].reason}; {left}")
    when = f" until {until:%H:%M}" if until else ", and --until tries again"
    raise ClusterError(f"no zone had room for all {props.worker_count + 1} nodes{when}; {left}")
