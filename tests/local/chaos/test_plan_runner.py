"""Test that a plan's faults begin and end in time."""

from typing import Any, cast

import pytest

from local.chaos.plan import KINDS, Plan, PlannedFault, PlannedTarget, make_plan, node_target
from local.chaos.plan_runner import run_plan
from local.errors import LocalError
from local.faults import Faults
from tests.local.fault_recorder import record_faults

INSTANCES = {1: "i-1", 2: "i-2", 3: "i-3"}


class Recorder:
    """Records the faults and their times, with its own clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, str, tuple[Any, ...]]] = []
        self.log: list[str] = []

    def record(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args == ("i-3",):
            raise LocalError("i-3 is not running")
        self.calls.append((self.now, name, (*args, *kwargs.items())))

    def run_plan(self, plan: Plan, instances: dict[int, str] | None = None) -> None:
        def sleep(seconds: float) -> None:
            self.now += seconds

        run_plan(
            plan,
            cast("Faults", self),
            instances=lambda: INSTANCES if instances is None else instances,
            log=self.log.append,
            clock=lambda: self.now,
            sleep=sleep,
        )


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    record_faults(monkeypatch, recorder.record)
    return recorder


def plan_of(*faults: PlannedFault) -> Plan:
    return Plan(seed=5, faults=faults)


def test_faults_begin_and_end_in_time_on_the_same_node(recorder: Recorder) -> None:
    freeze = PlannedFault(kind="freeze", at_s=1.0, duration_s=10.0, targets=(node_target(2),))
    pair = PlannedFault(kind="partition-pair", at_s=4.0, duration_s=2.0, targets=(node_target(1), node_target(2)))
    throttle = PlannedFault(kind="throttle", at_s=20.0, duration_s=1.0)
    recorder.run_plan(plan_of(freeze, pair, throttle))
    assert recorder.calls == [
        (1.0, "freeze", ("i-2",)),
        (4.0, "partition", ("i-1", "i-2")),
        (6.0, "end_partition", ("i-1", "i-2")),
        (11.0, "end_freeze", ("i-2",)),
        (20.0, "throttle", (("fraction", 0.5), ("seed", 7))),
        (21.0, "end_throttle", ()),
    ]
    assert recorder.log[:2] == ["    1.0 s  freeze i-2 begins", "    4.0 s  partition-pair i-1 and i-2 begins"]


def test_spot_notice_passes_its_duration_and_needs_no_end(recorder: Recorder) -> None:
    recorder.run_plan(plan_of(PlannedFault(kind="spot-notice", at_s=0.0, duration_s=9.0, targets=(node_target(2),))))
    assert recorder.calls == [(0.0, "spot_notice", ("i-2", ("seconds", 9.0)))]


def test_fault_without_a_target_is_skipped(recorder: Recorder) -> None:
    gone = PlannedFault(kind="freeze", at_s=0.0, duration_s=9.0, targets=(node_target(7),))
    down = PlannedFault(kind="freeze", at_s=1.0, duration_s=9.0, targets=(node_target(3),))
    kill = PlannedFault(kind="kill", at_s=2.0, targets=(node_target(1),))
    recorder.run_plan(plan_of(gone, down, kill))
    assert recorder.calls == [(2.0, "kill", ("i-1",))]
    assert recorder.log == [
        "    0.0 s  freeze  skipped: no instance deeplearning-worker7",
        "    1.0 s  freeze i-3 skipped: i-3 is not running",
        "    2.0 s  kill i-1 begins",
    ]


def test_two_targets_of_a_type_are_two_nodes(recorder: Recorder) -> None:
    any_worker = PlannedTarget(node_type="worker", position=4)
    pair = PlannedFault(kind="partition-pair", at_s=0.0, duration_s=1.0, targets=(any_worker, any_worker))
    recorder.run_plan(plan_of(pair), {1: "i-1", 2: "i-2", 4: "i-4"})
    assert recorder.calls[0] == (0.0, "partition", ("i-2", "i-4"))


def test_every_kind_of_fault_begins_and_lasting_ones_end(recorder: Recorder) -> None:
    plan = make_plan(1, count=3 * len(KINDS), within_s=100, targets=[node_target(1), node_target(2)], min_per_kind=3)
    recorder.run_plan(plan)
    ended = sum(1 for fault in plan.faults if fault.duration_s and fault.kind != "spot-notice")
    assert len(recorder.calls) == len(plan.faults) + ended
