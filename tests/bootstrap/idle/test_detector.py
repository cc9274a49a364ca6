"""Check, in rounds of a simulated cluster, that a busy one is never stopped and an idle one always is.

The agents' own code reads the files that jobs, sessions, work in tmux and downloads leave on each node. All rounds
together take three seconds, so all of them run in the gate.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from bootstrap.idle.detector import NOTICE_S, REPORT_MAX_AGE_S, SILENT_AFTER_S, TOLERANCE_S, IdleDetector, Verdict
from bootstrap.idle.load import INPUT_S, Load
from bootstrap.idle.report import IdleReporter
from tests.bootstrap.idle.node_files import USER, lock_job, open_job, touch_terminal, write_counters

PASS_S = 6.0
"""Seconds between an agent's passes."""
RECONCILE_S = 18.0
"""Seconds between the master's reads of the records."""
IDLE_STOP_S = 900.0
MAX_OUTAGE_S = 90.0
LATE_S = 60.0 + MAX_OUTAGE_S
"""Seconds until work has become known to the master: a sample, a pass, a read, and the longest outage."""
SEEN_S = 40.0
"""Length in seconds of work that no node misses."""
WORK_S = 3500.0
"""Seconds in which work begins."""
TYPES_S = 20.0
"""Seconds between two inputs of a session."""
CORES = 1.0
"""CPU that work in tmux takes: a program with one thread."""
BYTES_PER_S = 1e6
"""Traffic of a download."""
SIGNS = {"job": "job", "session": "terminal", "tmux work": "cpu", "download": "network", "tmux output": ""}
"""Kinds of work, each with the sign by which the agent sees it; output without input, such as a clock's, is none."""
USES = tuple(kind for kind, sign in SIGNS.items() if sign)
"""Kinds of work that keep a node busy."""
IDLE_CORES, IDLE_BYTES_PER_S = 0.03, 20_000
"""Load of a node's daemons."""
NOON = 1_800_000_000.0
"""Time of the wall clock at the start of a round."""
LONG_AGO = -1e6


class Span(NamedTuple):
    """Work of a kind, or an outage of the table, from one time to another."""

    start: float
    end: float
    kind: str = "job"

    def covers(self, now: float) -> bool:
        return self.start <= now < self.end

    def seconds(self, now: float) -> float:
        """Return how long the work has taken so far."""
        return max(0.0, min(now, self.end) - self.start)

    def last_input(self, now: float) -> float:
        """Return the last time that is a whole number of inputs after the start."""
        return self.start + self.seconds(now) // TYPES_S * TYPES_S if now >= self.start else LONG_AGO


class Node:
    """A node with its work and its files; at times it cannot write, and from ``lost`` on it is silent."""

    def __init__(self, number: int, chance: random.Random, root: Path) -> None:
        self.name, self.now, self.root = f"i-{number:017x}", 0.0, root
        self.work = [span._replace(kind=chance.choice([*SIGNS])) for span in spans(chance, (20.0, 50.0, 400.0, 1500.0))]
        self.outages = list(spans(chance, (MAX_OUTAGE_S / 2, MAX_OUTAGE_S)))
        self.lost = chance.uniform(0.0, WORK_S) if number and chance.random() < 0.3 else float("inf")
        self.job = open_job(root)
        self.load = Load(
            root=root,
            user=USER.pw_name,
            gpu_percent=lambda: None,
            monotonic=lambda: self.now,
            wall_clock=lambda: NOON + self.now,
        )
        sequence_numbers = iter(range(10**6))
        self.report = IdleReporter(
            self._busy_with, monotonic=lambda: self.now, sequence_number=lambda: next(sequence_numbers)
        )
        self.report.set_enabled(True)

    def of(self, *kinds: str) -> "list[Span]":
        """Return the node's work of these kinds."""
        return [work for work in self.work if work.kind in kinds]

    def _busy_with(self) -> str:
        """Write what the work leaves in the node's files, and return the sign that the agent's own code finds."""
        now = self.now
        lock_job(self.job, runs=any(work.covers(now) for work in self.of("job")))
        inputs, outputs = (
            max((work.last_input(now) for work in self.of(*kinds)), default=LONG_AGO)
            for kinds in (("session",), ("session", "tmux output"))
        )
        touch_terminal(self.root, "0", input_at=NOON + inputs, output_at=NOON + outputs)
        write_counters(
            self.root,
            cpu_s=now * IDLE_CORES + sum(work.seconds(now) * CORES for work in self.of("tmux work")),
            network=now * IDLE_BYTES_PER_S + sum(work.seconds(now) * BYTES_PER_S for work in self.of("download")),
        )
        sign = self.load.busy_with()
        assert sign in {"", *(SIGNS[work.kind] for work in self.work if work.start <= now)}
        return sign

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
            for work in self.of(*USES)
        )


def spans(chance: random.Random, lengths: Sequence[float]) -> Iterator[Span]:
    for _ in range(chance.randint(0, 3)):
        start = chance.uniform(0.0, WORK_S)
        yield Span(start, start + chance.choice(lengths))


def verdicts(nodes: list[Node]) -> Iterator[tuple[float, Verdict]]:
    table: dict[str, str] = {}
    watch, names = IdleDetector(arrival_s=1200.0), {node.name for node in nodes}
    now = 0.0
    while True:
        for node in nodes:
            node.make_pass(now, table)
        if now % RECONCILE_S == 0:
            watch.observe(table, instances=names, now=now)
            yield now, watch.decide(idle_stop_s=IDLE_STOP_S, members=names, now=now)
        now += PASS_S


NewNode = Callable[[int, random.Random], Node]


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[NewNode]:
    """Return a function that makes a node with files of its own."""
    made: list[Node] = []

    def make(number: int, chance: random.Random) -> Node:
        made.append(Node(number, chance, tmp_path / str(number)))
        return made[-1]

    yield make
    for node in made:
        os.close(node.job)


@pytest.mark.parametrize("seed", range(50))
def test_only_idle_clusters_are_stopped(new_node: NewNode, seed: int) -> None:
    chance = random.Random(seed)
    nodes = [new_node(number, chance) for number in range(chance.randint(1, 4))]
    ends = [work.end + INPUT_S for node in nodes for work in node.of(*USES)]
    ends += [node.lost + 1200.0 for node in nodes[1:]]
    quiet = max([0.0, *(end for end in ends if end < float("inf"))])
    announced = None
    for now, verdict in verdicts(nodes):
        announced = (announced or now) if verdict.pauses_at else None
        if verdict.is_due:
            assert announced is not None
            assert now - announced >= NOTICE_S
            for node in nodes:
                assert not node.lost + REPORT_MAX_AGE_S <= now < node.lost + SILENT_AFTER_S, f"{node.name} is unknown"
                if now < node.lost + SILENT_AFTER_S:
                    since, reported = now - IDLE_STOP_S + TOLERANCE_S, min(now, node.lost) - LATE_S
                    assert not node.busy_between(since, reported), f"{node.name} is busy"
        if now >= quiet + IDLE_STOP_S + 120.0:
            assert verdict.is_due, "the idle cluster was not stopped"
            return


@pytest.mark.parametrize("phase", range(0, 120, 20))
def test_work_in_the_last_minute_postpones_the_pause(new_node: NewNode, phase: int) -> None:
    # Between two heartbeats too, because a node that has reported idle reports immediately.
    node = new_node(0, random.Random(0))
    node.work, node.outages = [Span(0.0, 100.0 + phase)], []
    for now, verdict in verdicts([node]):
        assert not verdict.is_due
        if verdict.pauses_at and len(node.work) == 1:
            node.work.append(Span(verdict.pauses_at - 60.0, float("inf")))
        if now > node.work[-1].start + 200.0 and len(node.work) == 2:
            return
