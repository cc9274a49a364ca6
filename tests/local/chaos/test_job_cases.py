"""Test the cases of jobs that faults hit, and how their outcomes are judged."""

from collections import Counter

import pytest

from local.chaos.job_cases import (
    DETACHED_PHASE,
    KINDS,
    PHASES,
    JobCase,
    JobFault,
    JobOutcome,
    RecordedEnd,
    draw_faults,
    judge,
)

WAITS = "launch: w2: lost: silent for 20 s; waiting at most 5 s for 3 nodes"
RESTARTS = "launch: restart 1 of 3 on 2 of 3 nodes: w1, w3"


def test_seed_gives_the_same_cases() -> None:
    assert draw_faults(7, cases=10, node_indexes=[1, 2, 3]) == draw_faults(7, cases=10, node_indexes=[1, 2, 3])
    assert draw_faults(7, cases=10, node_indexes=[1, 2, 3]) != draw_faults(8, cases=10, node_indexes=[1, 2, 3])


@pytest.mark.parametrize("seed", range(20))
def test_fifty_cases_cover_every_kind_moment_and_node(seed: int) -> None:
    faults = draw_faults(seed, cases=50, node_indexes=[1, 2, 3])
    phases = Counter(job_case.phase for fault in faults for job_case in fault.cases)
    assert sum(phases.values()) == 50
    assert all(phases[phase] >= 10 for phase in PHASES)
    assert Counter(fault.kind for fault in faults).keys() == set(KINDS)
    assert Counter(fault.node_index for fault in faults).keys() == {1, 2, 3}


@pytest.mark.parametrize("seed", range(20))
def test_ten_cases_have_every_kind_of_fault_and_every_node(seed: int) -> None:
    faults = draw_faults(seed, cases=10, node_indexes=[1, 2, 3])
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.node_index for fault in faults} == {1, 2, 3}
    assert sum(job_case.phase == "rendezvous" for fault in faults for job_case in fault.cases) >= 3


def ranks(world: int, *, done: int) -> list[str]:
    return [
        *(f"w{rank} [0] joins {world} ranks" for rank in range(world)),
        *(f"w{rank} [0] done" for rank in range(done)),
    ]


BEFORE = [(-2.0, line) for line in ranks(3, done=0)]
"""Output of a job whose ranks were running when the fault occurred."""


def make_outcome(
    *parts: list[str],
    code: int | None = 0,
    at: float = 30.0,
    ended_s: float | None = 40.0,
    state: str | None = "",
    recorded_code: int | None = -1,
    before: list[tuple[float, str]] = BEFORE,
) -> JobOutcome:
    """Build the outcome of a job with this output after the fault; by default its record agrees with its session."""
    state = ("FAILED" if code else "SUCCEEDED") if state == "" else state
    recorded_end = (
        None if state is None else RecordedEnd(state=state, exit_code=code if recorded_code == -1 else recorded_code)
    )
    lines = [*before, *((at, line) for part in parts for line in part)]
    return JobOutcome(lines=lines, ended_s=ended_s, code=code, recorded_end=recorded_end)


def verdict(
    outcome: JobOutcome, policy: str, *, node_index: int = 2, kind: str = "freeze", phase: str = "stepping"
) -> list[str]:
    is_detached = phase == DETACHED_PHASE
    job_case = JobCase(phase=phase, fraction=0.5, policy=policy, is_detached=is_detached)  # type: ignore[arg-type]  # strings of parametrize
    fault = JobFault(kind=kind, node_index=node_index, cases=(job_case,))  # type: ignore[arg-type]  # strings of parametrize
    return judge(outcome, job_case, fault=fault, recovered_s=35.0)


@pytest.mark.parametrize(("outcome", "policy"), [
    (make_outcome(code=1), "end"),
    (make_outcome(code=9), "end"),
    (make_outcome([WAITS, RESTARTS], ranks(2, done=2)), "fewer"),
    (make_outcome([WAITS, RESTARTS], ranks(3, done=3), at=90.0), "all"),
])  # fmt: skip
def test_judge_accepts_expected_outcomes(outcome: JobOutcome, policy: str) -> None:
    assert verdict(outcome, policy) == []


@pytest.mark.parametrize(("outcome", "policy", "error"), [
    (make_outcome(code=None, ended_s=None), "end", "it never ended"),
    (make_outcome(ranks(3, done=2)), "end", "it ended with 0, and 2 of 3 ranks were done"),
    (make_outcome(before=[]), "end", "its ranks were not running when the fault occurred"),
    (make_outcome(code=137), "end", "it ended with 137, neither 1 nor 9"),
    (make_outcome(code=1, ended_s=61.0), "end", "it ended 61 s after the fault"),
    (make_outcome(code=1, ended_s=-1.0), "end", "it ended before the fault"),
    (make_outcome(code=1), "fewer", "it ended with 1, and should have started again"),
    (make_outcome([RESTARTS], ranks(3, done=3)), "end", "it started again, and should have ended"),
    (make_outcome([WAITS, RESTARTS], ranks(1, done=1)), "fewer", "it ended on 1 nodes, 2 were asked for"),
    (make_outcome([WAITS, RESTARTS], ranks(2, done=2)), "all", "it ended on 2 nodes, 3 were asked for"),
    (make_outcome([RESTARTS], ranks(2, done=2), at=61.0), "fewer", "it started again 61 s after the fault"),
    (make_outcome([RESTARTS], ranks(3, done=3), at=96.0), "all", "it started again 96 s after the fault"),
    (make_outcome(code=1, state=None), "end", "it has no record"),
    (make_outcome(code=1, state="RUNNING"), "end", "it ended with 1, and its record says RUNNING, 1"),
    (make_outcome(code=1, state="CANCELLED"), "end", "it ended with 1, and its record says CANCELLED, 1"),
    (make_outcome(code=1, recorded_code=9), "end", "it ended with 1, and its record says FAILED, 9"),
])  # fmt: skip
def test_judge_reports_each_deviation(outcome: JobOutcome, policy: str, error: str) -> None:
    assert error in verdict(outcome, policy)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phase", ["rendezvous", "stepping"])
@pytest.mark.parametrize("policy", ["end", "fewer", "all"])
def test_no_job_continues_after_a_fault_of_its_rank(kind: str, phase: str, policy: str) -> None:
    # Without a heartbeat timeout, the ranks would continue as soon as the fault is over.
    unaffected = make_outcome([f"w{rank} [0] done" for rank in range(3)])
    assert "it went on as if nothing had happened to its ranks" in verdict(unaffected, policy, kind=kind, phase=phase)


def test_job_without_ranks_may_continue() -> None:
    later = make_outcome(ranks(3, done=3), before=[])
    assert verdict(later, "end", phase="connecting") == []
    assert verdict(make_outcome([f"w{rank} [0] done" for rank in range(3)]), "end", phase="connecting") != []


def test_launcher_fault_is_judged_by_remaining_evidence() -> None:
    too_few = make_outcome(
        ["launch: w2: lost: silent for 20 s; not restarted: 1 node available, at least 2 needed; w2: no answer"], code=1
    )
    assert verdict(too_few, "fewer", node_index=1, kind="partition") == []
    assert verdict(too_few, "fewer", node_index=2, kind="partition") != []
    assert verdict(make_outcome(code=1), "fewer", node_index=1, kind="freeze") != []
    assert verdict(make_outcome(code=None, ended_s=None), "end", node_index=1, kind="freeze") == ["it never ended"]
    unaffected = make_outcome([f"w{rank} [0] done" for rank in range(3)])
    assert verdict(unaffected, "end", node_index=1, kind="freeze") == [
        "it went on as if nothing had happened to its ranks"
    ]


def test_lost_session_excuses_only_connecting_jobs() -> None:
    lost = make_outcome(code=255, state="FAILED", recorded_code=1)
    assert verdict(lost, "fewer", node_index=1, kind="partition") != []
    assert verdict(lost, "fewer", node_index=1, kind="partition", phase="connecting") == []
    # A detached job needs no session, so its record is complete.
    assert verdict(lost, "end", node_index=1, kind="partition", phase="rendezvous") == []
    assert verdict(make_outcome(code=0, state="FAILED", recorded_code=137), "end", phase="rendezvous") != []


@pytest.mark.parametrize(("phase", "state", "is_right"), [
    ("rendezvous", "FAILED", True),
    ("rendezvous", "CANCELLED", False),
    ("rendezvous", "RUNNING", False),
    ("rendezvous", "SUCCEEDED", False),
    ("rendezvous", None, False),
    ("stepping", "FAILED", True),
    ("stepping", "CANCELLED", True),
    ("stepping", "RUNNING", False),
    ("stepping", "SUCCEEDED", False),
    ("connecting", None, True),
    ("connecting", "PENDING", False),
])  # fmt: skip
def test_job_whose_launchers_node_restarts_has_failed(phase: str, state: str | None, is_right: bool) -> None:
    gone = make_outcome(code=255, state=state, recorded_code=None)
    assert (verdict(gone, "all", node_index=1, kind="reboot", phase=phase) == []) is is_right


def test_session_after_reboot_is_judged_normally() -> None:
    whole = make_outcome(ranks(3, done=3), before=[])
    assert verdict(whole, "all", node_index=1, kind="reboot", phase="connecting") == []
    half = make_outcome(ranks(3, done=2), before=[])
    assert verdict(half, "all", node_index=1, kind="reboot", phase="connecting") != []


def test_killed_launcher_node_has_no_verdict() -> None:
    assert verdict(make_outcome(code=None, ended_s=None, state=None), "end", node_index=1, kind="kill") == []
