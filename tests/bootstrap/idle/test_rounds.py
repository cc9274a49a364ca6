"""Check, in rounds of a simulated cluster, that a busy one is never stopped and an idle one always is."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from bootstrap.idle.report import ActivityReport
from bootstrap.idle.watch import ANNOUNCED_S, FRESH_S, TOLERANCE_S, UNKNOWN_S, IdleWatch, Verdict

PASS_S = 6.0
"""Seconds between an agent's passes."""
RECONCILE_S = 18.0
"""Seconds between the master's reads of the records."""
IDLE_STOP_S = 1800.0
LONGEST_OUTAGE_S = 90.0
LATE_S = 60.0 + LONGEST_OUTAGE_S
"""Seconds until work has become known to the master: a sample, a pass, a read, and the longest outage."""
SEEN_S = 40.0
"""Length in seconds of work that no node misses."""
WORK_S = 7000.0
"""Seconds in which work begins."""


class Span(NamedTuple):
    """A job, a session, a download, or an outage of the table, from one time to another."""

    start: float
    end: float

    def covers(self, now: float) -> bool:
        return self.start <= now < self.end


class Node:
    """A node with its work; at times it cannot write, and from ``lost`` on it is silent."""

    def __init__(self, number: int, chance: random.Random, start: float) -> None:
        self.name, self.now = f"i-{number:017x}", start
        self.work = list(spans(chance, (20.0, 50.0, 400.0, 3000.0)))
        self.outages = list(spans(chance, (LONGEST_OUTAGE_S / 2, LONGEST_OUTAGE_S)))
        self.lost = chance.uniform(0.0, WORK_S) if number and chance.random() < 0.3 else float("inf")
        beats = iter(range(10**6))
        self.report = ActivityReport(self._busy_with, monotonic=lambda: self.now, beat=lambda: next(beats))
        self.report.set_enabled(True)

    def _busy_with(self) -> str:
        return "job" if any(work.covers(self.now) for work in self.work) else ""

    def make_pass(self, now: float, table: dict[str, str]) -> None:
        """Write the report if it is due, then sample the load, like the agent."""
        self.now = now
        if now < self.lost:
            if self.report.is_due and not any(outage.covers(now) for outage in self.outages):
                table[self.name] = self.report.text()
                self.report.mark_written()
            self.report.observe()

    def busy_between(self, start: float, end: float) -> bool:
        """Return True if work that counts occurred in this period."""
        return any(
            min(work.end, end, self.lost) - max(work.start, start) >= 0 and work.end - work.start >= SEEN_S
            for work in self.work
        )


def spans(chance: random.Random, lengths: Sequence[float]) -> Iterator[Span]:
    for _ in range(chance.randint(0, 3)):
        start = chance.uniform(0.0, WORK_S)
        yield Span(start, start + chance.choice(lengths))


def verdicts(nodes: list[Node], start: float) -> Iterator[tuple[float, Verdict]]:
    table: dict[str, str] = {}
    watch, names = IdleWatch(arrival_s=1200.0), {node.name for node in nodes}
    now = start
    while True:
        for node in nodes:
            node.make_pass(now, table)
        if now % RECONCILE_S == start % RECONCILE_S:
            watch.observe(table, instances=names, now=now)
            yield now, watch.decide(idle_stop_s=IDLE_STOP_S, members=names, now=now)
        now += PASS_S


@pytest.mark.parametrize("seed", range(50))
def test_only_idle_clusters_are_stopped(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [Node(number, chance, 0.0) for number in range(chance.randint(1, 4))]
    ends = [work.end for node in nodes for work in node.work] + [node.lost + 1200.0 for node in nodes[1:]]
    quiet = max([0.0, *(end for end in ends if end < float("inf"))])
    announced = None
    for now, verdict in verdicts(nodes, 0.0):
        announced = (announced or now) if verdict.pauses_at else None
        if verdict.is_due:
            assert announced is not None
            assert now - announced >= ANNOUNCED_S
            for node in nodes:
                assert not node.lost + FRESH_S <= now < node.lost + UNKNOWN_S, f"{node.name} is unknown"
                if now < node.lost + UNKNOWN_S:
                    since, reported = now - IDLE_STOP_S + TOLERANCE_S, min(now, node.lost) - LATE_S
                    assert not node.busy_between(since, reported), f"{node.name} is busy"
        if now >= quiet + IDLE_STOP_S + 120.0:
            assert verdict.is_due, "the idle cluster was not stopped"
            return


@pytest.mark.parametrize("phase", range(0, 120, 20))
def test_work_in_the_last_minute_postpones_the_pause(phase: int) -> None:
    """Between two heartbeats too, because a node that has reported idle reports immediately."""
    node = Node(0, random.Random(0), 0.0)
    node.work, node.outages = [Span(0.0, 100.0 + phase)], []
    for now, verdict in verdicts([node], 0.0):
        assert not verdict.is_due
        if verdict.pauses_at and len(node.work) == 1:
            node.work.append(Span(verdict.pauses_at - 60.0, float("inf")))
        if now > node.work[-1].start + 200.0 and len(node.work) == 2:
            return
