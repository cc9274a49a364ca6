"""Decide from the nodes' reports when an idle cluster pauses. Nothing here uses a clock, a node or AWS.

A report contains the seconds for which its node has been idle. The master measures the report's age by its own clock,
because the nodes' clocks may differ. A cluster is idle from the moment its last busy node was busy.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bootstrap.idle.pause_record import parse_idle_report

NOTICE_S: Final = 300.0
"""Seconds between the announcement of a pause and the pause."""
REPORT_MAX_AGE_S: Final = 290.0
"""Seconds for which a report counts: two heartbeats (report.HEARTBEAT_S) and the passes in between. Below NOTICE_S,
so that each node reports at least once between the announcement and the pause."""
SILENT_AFTER_S: Final = 600.0
"""Seconds for which a node without a fresh report counts as busy. After that it is silent and no longer counts."""
TOLERANCE_S: Final = 60.0
"""Seconds by which two reports of the same idle time may differ, because reports wait for the agent's and the master's
passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """State of the cluster at one moment, in the master's monotonic seconds."""

    idle_since: float | None = None
    """Time of the last activity; None for a busy cluster."""
    pauses_at: float | None = None
    """Announced time of the pause."""
    is_due: bool = False
    """True if the cluster must pause now."""
    silent: tuple[str, ...] = ()
    """Instances whose reports have been missing for so long that they no longer count."""


@dataclass(kw_only=True, slots=True)
class _Node:
    """The master's knowledge of one instance."""

    last_report_at: float
    """Time of its last report or, before one counts, when it was first seen."""
    sequence_number: int | None = None
    last_active_at: float | None = None
    """Time of its last activity; None if it has never reported."""


class IdleDetector:
    """Evaluates the reports of all instances: ``observe`` collects them, ``decide`` judges them."""

    def __init__(self, *, arrival_s: float) -> None:
        """Count an instance as busy for ``arrival_s`` seconds before it is a member: its setup may be running."""
        self._arrival_s = max(arrival_s, REPORT_MAX_AGE_S + SILENT_AFTER_S)
        self._nodes: dict[str, _Node] = {}
        self._announced: float | None = None

    def observe(self, reports: Mapping[str, str], *, instances: Collection[str], now: float) -> None:
        """Collect the reports of the groups' instances."""
        nodes: dict[str, _Node] = {}
        for name in instances:
            report, node = parse_idle_report(reports.get(name, "")), self._nodes.get(name)
            if node is None:
                # The first report found may be old, so count from the next one.
                node = _Node(last_report_at=now, sequence_number=report.sequence_number if report else None)
            elif report is not None and report.sequence_number != node.sequence_number:
                node.last_report_at, node.sequence_number, active_at = now, report.sequence_number, now - report.idle_s
                if node.last_active_at is None or abs(active_at - node.last_active_at) > TOLERANCE_S:
                    node.last_active_at = active_at
            nodes[name] = node
        self._nodes = nodes

    def decide(self, *, idle_stop_s: float, members: Collection[str], now: float) -> Verdict:
        """Judge the cluster; with ``idle_stop_s`` 0 it never pauses, and nodes need not report."""
        if not idle_stop_s:
            self._nodes.clear()
        active_at = {name: self._last_active_at(name, node, members, now) for name, node in self._nodes.items()}
        silent = tuple(sorted(name for name, last in active_at.items() if last is None))
        since = max((last for last in active_at.values() if last is not None), default=now)
        if now - since <= REPORT_MAX_AGE_S:
            self.withdraw()
            return Verdict(silent=silent)
        if now - since < idle_stop_s - NOTICE_S:
            self.withdraw()
            return Verdict(idle_since=since, silent=silent)
        announced = self._announced = now if self._announced is None else self._announced
        pauses_at = max(since + idle_stop_s, announced + NOTICE_S)
        return Verdict(idle_since=since, pauses_at=pauses_at, is_due=now >= pauses_at, silent=silent)

    def withdraw(self) -> None:
        """Withdraw an announcement because the cluster is busy again or the announcement was never written."""
        self._announced = None

    def _last_active_at(self, name: str, node: _Node, members: Collection[str], now: float) -> float | None:
        """Return the time of the last activity; None for a silent instance."""
        if node.last_active_at is not None and now - node.last_report_at <= REPORT_MAX_AGE_S:
            return node.last_active_at
        has_joined = name in members or node.last_active_at is not None
        limit = REPORT_MAX_AGE_S + SILENT_AFTER_S if has_joined else self._arrival_s
        return now if now - node.last_report_at <= limit else None
