"""Report what a search did: each zone with EC2's own reason, and what it cost."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from bootstrap.contract import MASTER, WORKER, NodeType
from cli.output import align_columns, fill_cells
from cli.up.fleet import ZoneOutcome
from stacks.prices.price_list import PriceList
from stacks.prices.rate import price_line
from stacks.settings.props import ClusterProps

MIN_BILLED_S: Final = 60
"""Minimum number of seconds that AWS bills for a Linux instance (Amazon EC2 pricing, "per-second billing")."""
COLUMNS: Final = ("ZONE", "TRIES", "CAME", "REASON")
SCORE: Final = "SCORE"
"""Column of the spot placement scores, which only a search by them has."""


def minimum_charge(launched: Mapping[NodeType, int], props: ClusterProps, prices: PriceList) -> float | None:
    """Return the minimum charge for nodes that were terminated immediately; None if a price is unknown."""
    total = 0.0
    for node_type, count in launched.items():
        price = prices.instances.get(props.master_type if node_type == MASTER else props.instance_type)
        if count and price is None:
            return None
        total += count * (price or 0.0) * MIN_BILLED_S / 3600
    return total


def cost_of_failed_attempts(tried: Sequence[ZoneOutcome], props: ClusterProps, prices: PriceList) -> str:
    """Return the minimum cost of all failed attempts, for the last line."""
    charges = [minimum_charge(outcome.launched, props, prices) for outcome in tried if outcome.nodes]
    known = [charge for charge in charges if charge is not None]
    cost = f"{sum(known):.3f} USD" if len(known) == len(charges) else "an unknown amount"
    return f"; the nodes that were launched cost {cost} or more" if charges else ""


def max_cost_per_attempt(props: ClusterProps, prices: PriceList) -> str:
    """Return the highest cost of one failed attempt: AWS bills at least a minute for each node launched."""
    charge = minimum_charge({MASTER: 1, WORKER: props.worker_count}, props, prices)
    return "an unknown amount" if charge is None else f"{charge:.3f} USD"


def ended_line(outcome: ZoneOutcome, props: ClusterProps, prices: PriceList) -> str:
    """Describe the outcome of a failed attempt, with its minimum cost."""
    verdict = "refused" if outcome.is_final else "has no capacity for"
    message = f"{outcome.zone} {verdict} all {props.worker_count + 1} nodes: {outcome.reason}"
    if not outcome.nodes:
        return message
    charge = minimum_charge(outcome.launched, props, prices)
    cost = "an unknown amount" if charge is None else f"{charge:.3f} USD"
    launched = "1 node was" if outcome.nodes == 1 else f"{outcome.nodes} nodes were"
    return f"{message}; {launched} launched and then terminated, for which AWS bills a minute each: {cost} or more"


def table(
    tried: Sequence[ZoneOutcome], zones_without_type: Mapping[str, str], scores: Mapping[str, int] | None = None
) -> str:
    """Return the table of reasons, a line a zone: EC2's newest, and the types that a zone never has."""
    tries = Counter(outcome.zone for outcome in tried)
    newest = {outcome.zone: outcome for outcome in tried}
    rows = [
        (zone, str(tries[zone]), str(attempt.nodes), attempt.reason or "all nodes were launched")
        for zone, attempt in newest.items()
    ]
    rows += [(zone, "0", "0", reason) for zone, reason in zones_without_type.items()]
    lines: list[tuple[str, ...]] = [COLUMNS, *rows]
    if scores is not None:
        score_cells = [SCORE, *(str(scores.get(zone, "none")) for zone, *_ in rows)]
        lines = [(zone, score, *others) for score, (zone, *others) in zip(score_cells, lines, strict=True)]
    return align_columns([lines[0], *fill_cells(lines[1:])])


def scores_line(zones: Sequence[str], scores: Mapping[str, int]) -> str:
    """Return the zones in the order in which they are tried, with their scores."""
    pairs = ", ".join(f"{zone} {scores.get(zone, 'none')}" for zone in zones)
    return f"spot placement scores, from 1 to 10: {pairs}"


def print_cost(props: ClusterProps, prices: PriceList, end: datetime | None) -> None:
    """Print, before the question, what the cluster can cost and for how long."""
    print(f"dlcluster: {price_line(props, prices)}", file=sys.stderr)
    print(
        f"dlcluster: each zone that fails costs up to {max_cost_per_attempt(props, prices)}; if this program is "
        "killed, nodes run until the next dlcluster up or pause",
        file=sys.stderr,
    )
    if end is not None:
        print(f"dlcluster: trying until {end.astimezone():%Y-%m-%d %H:%M %Z}", file=sys.stderr)
