"""Test that a seed gives a plan of faults."""

from collections import Counter

import pytest

from local.chaos.plan import ANY_WORKER, KINDS, Plan, PlannedFault, PlannedTarget, make_plan, node_target

TARGETS = [node_target(number) for number in range(1, 5)]


def plan_of(seed: int, *, count: int = 40, targets: list[PlannedTarget] | None = None) -> Plan:
    return make_plan(seed, count=count, within_s=300, targets=targets or TARGETS, min_per_kind=2)


def test_seed_gives_one_plan() -> None:
    assert plan_of(7) == plan_of(7)
    assert str(plan_of(7)) == str(plan_of(7))
    assert plan_of(7) != plan_of(8)


@pytest.mark.parametrize("seed", range(20))
def test_each_fault_type_occurs_as_often_as_requested(seed: int) -> None:
    faults = plan_of(seed).faults
    times = Counter(fault.kind for fault in faults)
    assert len(faults) == 40
    assert set(times) == set(KINDS)
    assert min(times.values()) >= 2


@pytest.mark.parametrize("seed", range(20))
def test_faults_overlap_and_come_in_order(seed: int) -> None:
    plan = plan_of(seed)
    assert len(plan.overlapping()) >= 5
    assert [fault.at_s for fault in plan.faults] == sorted(fault.at_s for fault in plan.faults)


@pytest.mark.parametrize("targets", [TARGETS, [ANY_WORKER, node_target(1)]], ids=["indexes", "types"])
@pytest.mark.parametrize("seed", range(20))
def test_no_two_of_a_kind_strike_one_node_at_once(seed: int, targets: list[PlannedTarget]) -> None:
    for first, second in plan_of(seed, targets=targets).overlapping():
        if first.kind == second.kind:
            hit = [{target.node_index for target in fault.targets} for fault in (first, second)]
            assert hit[0].isdisjoint(hit[1])
            assert None not in hit[0] | hit[1]


def test_fault_of_a_pair_has_two_nodes_and_an_api_fault_none() -> None:
    numbers = {fault.kind: len(set(fault.targets)) for fault in plan_of(3).faults}
    assert (numbers["partition-pair"], numbers["api-outage"], numbers["kill"]) == (2, 0, 1)


def test_fault_target_is_an_index_or_any_node_of_a_type() -> None:
    held = {1: "i-1", 3: "i-3", 4: "i-4"}
    assert [node_target(number).resolve(held) for number in (1, 2, 3)] == [1, None, 3]
    assert [PlannedTarget(node_type="worker", position=position).resolve(held) for position in range(3)] == [3, 4, 3]
    assert PlannedTarget(node_type="master").resolve(held) == 1
    assert PlannedTarget(node_type="worker").resolve({1: "i-1"}) is None
    with pytest.raises(ValueError, match="a node index or a type of node"):
        PlannedTarget()


def test_plan_is_printed_with_one_fault_a_line() -> None:
    faults = (
        PlannedFault(kind="freeze", at_s=3.0, duration_s=12.5, targets=(node_target(1),)),
        PlannedFault(
            kind="partition-pair",
            at_s=10.0,
            duration_s=5.0,
            targets=(node_target(2), PlannedTarget(node_type="worker")),
        ),
        PlannedFault(kind="throttle", at_s=100.0, duration_s=5.0),
    )
    assert str(Plan(seed=7, faults=faults)).splitlines() == [
        "3 faults, seed 7, overlapping pairs: 1",
        "    3.0 s  freeze          deeplearning-master for 12.5 s",
        "   10.0 s  partition-pair  deeplearning-worker2 and any worker (no. 0) for 5.0 s",
        "  100.0 s  throttle        AWS's API, for all nodes for 5.0 s",
    ]


def test_plan_without_room_for_each_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=f"count must be at least {2 * len(KINDS)} for {len(KINDS)} kinds, got 4"):
        plan_of(1, count=4)
    with pytest.raises(ValueError, match="partition-pair needs two targets"):
        plan_of(1, targets=[node_target(1)])
