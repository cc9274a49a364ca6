"""Decide from the nodes' reports when an idle cluster pauses. Nothing here touches a clock, a node or AWS.

A report carries the seconds that its node has been idle, and its age is told by the master's own clock, as the nodes'
clocks may differ. A cluster is idle since its last busy node was busy.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bootstrap.idle.pause_record import parse_activity

ANNOUNCED_S: Final = 300.0
"""Seconds from the announcement of a pause to the pause."""
FRESH_S: Final = 290.0
"""Seconds for which a report counts: two heartbeats (report.HEARTBEAT_S) and the passes in between. Below ANNOUNCED_S,
so that each node reports at least once between the announcement and the pause."""
UNKNOWN_S: Final = 600.0
"""Seconds for which a node without a fresh report counts as busy. It is silent from then on, and counts no more."""
TOLERANCE_S: Final = 60.0
"""Seconds by which two reports of one idle time may differ: reports wait for the agent's and the master's passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The state of the cluster at one moment, in the master's monotonic seconds."""

    idle_since: float | None = None
    """Time of the last activity; None for a busy cluster."""
    pauses_at: float | None = None
    """Announced time of the pause."""
    is_due: bool = False
    """True if the cluster must pause now."""
    silent: tuple[str, ...] = ()
    """Instances without a report for so long that they no longer count."""


@dataclass(kw_only=True, slots=True)
class _Node:
    """What the master knows of one instance."""

    since: float
    """Time when the instance was first seen, or last heard."""
    beat: int | None = None
    active: float | None = None
    """Time of its last activity; None if it has never been heard."""


class IdleWatch:
    """Follows the reports of all instances; ``observe`` takes them in, ``decide`` judges."""

    def __init__(self, *, arrival_s: float) -> None:
        """Let an instance that is no member yet count as busy for ``arrival_s`` seconds: its setup may run."""
        self._arrival_s = max(arrival_s, FRESH_S + UNKNOWN_S)
        self._nodes: dict[str, _Node] = {}
        self._announced: float | None = None

    def observe(self, reports: Mapping[str, str], *, instances: Collection[str], now: float) -> None:
        """Take in the reports of the groups' instances."""
        found: dict[str, _Node] = {}
        for name in instances:
            report, node = parse_activity(reports.get(name, "")), self._nodes.get(name)
            if node is None:
                # Nothing tells the age of a report that was there first: count from the next.
                node = _Node(since=now, beat=report.beat if report else None)
            elif report is not None and report.beat != node.beat:
                node.since, node.beat, active = now, report.beat, now - report.idle_s
                if node.active is None or abs(active - node.active) > TOLERANCE_S:
                    node.active = active
            found[name] = node
        self._nodes = found

    def decide(self, *, idle_stop_s: float, members: Collection[str], now: float) -> Verdict:
        """Judge the cluster; with ``idle_stop_s`` 0 it never pauses, and no node has to report."""
        if not idle_stop_s:
            self._nodes.clear()
        active = {name: self._last_active(name, node, members, now) for name, node in self._nodes.items()}
        silent = tuple(sorted(name for name, time in active.items() if time is None))
        since = max((time for time in active.values() if time is not None), default=now)
        if now - since <= FRESH_S:
            self.withdraw()
            return Verdict(silent=silent)
        if now - since < idle_stop_s - ANNOUNCED_S:
            self.withdraw()
            return Verdict(idle_since=since, silent=silent)
        announced = self._announced = now if self._announced is None else self._announced
        pauses_at = max(since + idle_stop_s, announced + ANNOUNCED_S)
        return Verdict(idle_since=since, pauses_at=pauses_at, is_due=now >= pauses_at, silent=silent)

    def withdraw(self) -> None:
        """Take back an announcement: of a cluster that is busy again, or one that was never written."""
        self._announced = None

    def _last_active(self, name: str, node: _Node, members: Collection[str], now: float) -> float | None:
        """Return the time of the last activity; None for a silent instance."""
        if node.active is not None and now - node.since <= FRESH_S:
            return node.active
        limit = FRESH_S + UNKNOWN_S if name in members or node.active is not None else self._arrival_s
        return now if now - node.since <= limit else None
