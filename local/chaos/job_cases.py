"""Draw faults under jobs from a seed, and judge each job by its output. Pure functions: no I/O.

One fault affects several jobs, each in another phase and with another restart policy; each of these is a case.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar, get_args

from bootstrap.contract import MASTER_INDEX
from local.chaos.job_script import LOST
from local.faults.node_indexes import alias_of_index

_Value = TypeVar("_Value")
JobFaultKind = Literal["kill", "freeze", "partition", "reboot"]
Phase = Literal["connecting", "rendezvous", "stepping"]
RestartPolicy = Literal["end", "fewer", "all"]
KINDS: Final[tuple[JobFaultKind, ...]] = get_args(JobFaultKind)
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
POLICIES: Final[tuple[RestartPolicy, ...]] = get_args(RestartPolicy)
DETACHED_PHASE: Final[Phase] = "rendezvous"
"""Phase in which a fault hits detached jobs: one of three."""

REACTION_TIMEOUT_S: Final = 60.0
"""Seconds after the fault in which a job must end or restart; for one that waits for all nodes, they start when the
cluster is healthy."""
MIN_NODES: Final = 2
OPTIONS: Final[dict[RestartPolicy, tuple[str, ...]]] = {
    "end": (),
    "fewer": ("--max-restarts", "3", "--min-nodes", str(MIN_NODES), "--rejoin-timeout", "5"),
    "all": ("--max-restarts", "3", "--rejoin-timeout", "180"),
}
RESTART_PREFIX: Final = "launch: restart "
"""Start of the line that the launcher prints when a job restarts."""
TOO_FEW_NODES: Final = f"; not restarted: 1 node available, at least {MIN_NODES} needed; "
NODE_LOST: Final = 1
SESSION_LOST: Final = 255
"""Exit code of ssh itself: the user's session was on the failed node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobCase:
    """One job under one fault."""

    phase: Phase
    fraction: float
    """Point within that phase at which the fault occurs, as a fraction of its length."""
    policy: RestartPolicy
    is_detached: bool = False
    """True if the job runs without the user's session, so that its record always states how it ended."""
    uses_idle_connections: bool = False
    """True if the job uses idle pooled connections; otherwise these stay idle and the fault affects them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFault:
    """One fault and the jobs that it affects."""

    kind: JobFaultKind
    node_index: int
    cases: tuple[JobCase, ...]

    @property
    def ends_launchers(self) -> bool:
        """Return True if the launchers and the user's sessions end with their node."""
        return self.node_index == MASTER_INDEX and self.kind in ("kill", "reboot")

    def __str__(self) -> str:
        jobs = ", ".join(f"{case.phase} at {case.fraction:.2f} ({case.policy})" for case in self.cases)
        return f"{self.kind} {alias_of_index(self.node_index)}; {jobs}"


def draw_faults(seed: int, *, cases: int, node_indexes: Sequence[int]) -> tuple[JobFault, ...]:
    """Draw faults of three cases each; kinds and nodes come in shuffled rounds, each of them once per round."""
    rng = random.Random(seed)  # noqa: S311  (repeatable on purpose)
    faults: list[JobFault] = []
    kinds, targets = _shuffled_rounds(rng, KINDS), _shuffled_rounds(rng, node_indexes)
    while missing := cases - sum(len(fault.cases) for fault in faults):
        policies = rng.sample(POLICIES, len(POLICIES))
        phases = rng.sample(PHASES, len(PHASES)) if missing < len(PHASES) else list(PHASES)
        jobs = [
            JobCase(
                phase=phase,
                fraction=round(rng.random(), 2),
                policy=policy,
                is_detached=phase == DETACHED_PHASE,
                uses_idle_connections=rng.random() < 0.5,
            )
            for phase, policy in zip(phases, policies, strict=True)
        ]
        faults.append(JobFault(kind=next(kinds), node_index=next(targets), cases=tuple(jobs[:missing])))
    return tuple(faults)


def _shuffled_rounds(rng: random.Random, values: Sequence[_Value]) -> Iterator[_Value]:
    """Yield every value once per round, each round in a new random order."""
    while True:
        yield from rng.sample(values, len(values))


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedEnd:
    """End of a job according to its record."""

    state: str
    exit_code: int | None


@dataclass(kw_only=True, slots=True)
class JobOutcome:
    """Observations of a job; times are in seconds from the fault."""

    lines: list[tuple[float, str]] = field(default_factory=list)
    """Lines of its output, both streams."""
    ended_s: float | None = None
    code: int | None = None
    """Exit code of the session."""
    recorded_end: RecordedEnd | None = None
    """The end in its record; None without a record or if its node is gone."""


def judge(outcome: JobOutcome, job_case: JobCase, *, fault: JobFault, recovered_s: float) -> list[str]:
    """List what is wrong with a case, one line each; `recovered_s` is when all nodes were back."""
    joined = any(at < 0 and " joins " in line for at, line in outcome.lines)
    if job_case.phase != "connecting" and not joined:
        return ["its ranks were not running when the fault occurred"]
    no_session = (
        job_case.phase == "connecting" and fault.node_index == MASTER_INDEX and outcome.code in (SESSION_LOST, None)
    )
    if fault.ends_launchers and (joined or no_session):
        return _judge_orphan(outcome, job_case, fault=fault)
    if no_session and outcome.ended_s is not None:
        return []
    recorded_end = outcome.recorded_end
    if outcome.ended_s is None or outcome.code is None:
        return ["it never ended"]
    if recorded_end is None:
        return ["it has no record"]
    code = recorded_end.exit_code if job_case.is_detached else outcome.code
    errors = []
    if (recorded_end.state, recorded_end.exit_code) != ("FAILED" if code else "SUCCEEDED", code):
        errors = [f"it ended with {code}, and its record says {recorded_end.state}, {recorded_end.exit_code}"]
    if code == 0:
        return errors + _judge_success(outcome, job_case, fault=fault, recovered_s=recovered_s, joined=joined)
    return errors + _judge_failure(outcome, code, job_case, fault=fault, recovered_s=recovered_s)


def _judge_orphan(outcome: JobOutcome, job_case: JobCase, *, fault: JobFault) -> list[str]:
    """Judge a job whose launcher's node is gone, by its record if the node comes back."""
    if fault.kind == "kill":
        return []
    if outcome.recorded_end is None:
        return [] if job_case.phase == "connecting" else ["it has no record"]
    # If the node shuts down in order, a logged-in user loses the session as with any other disconnect.
    right = ("FAILED",) if job_case.is_detached else ("FAILED", "CANCELLED")
    state = outcome.recorded_end.state
    return [] if state in right else [f"its record says {state}, and not {' or '.join(right)}"]


def _judge_success(
    outcome: JobOutcome, job_case: JobCase, *, fault: JobFault, recovered_s: float, joined: bool
) -> list[str]:
    text = [line for _, line in outcome.lines]
    world, done = _last_attempt(text)
    errors = [] if done >= world > 0 else [f"it ended with 0, and {done} of {world} ranks were done"]
    awaited = _awaited_nodes(text)
    fewest = min(MIN_NODES, awaited) if job_case.policy == "fewer" else awaited
    errors += [] if world >= fewest else [f"it ended on {world} nodes, {fewest} were asked for"]
    restarts = [at for at, line in outcome.lines if at > 0 and line.startswith(RESTART_PREFIX)]
    if joined and not restarts:
        # All faults are longer than the heartbeat timeout after which a node counts as lost.
        errors.append("it went on as if nothing had happened to its ranks")
    if restarts and job_case.policy == "end":
        errors.append("it started again, and should have ended")
    # The launcher itself may have been frozen or disconnected.
    limit_s = REACTION_TIMEOUT_S + (
        recovered_s if job_case.policy == "all" or fault.node_index == MASTER_INDEX else 0.0
    )
    if restarts and min(restarts) > limit_s:
        errors.append(f"it started again {min(restarts):.0f} s after the fault")
    return errors


def _judge_failure(
    outcome: JobOutcome, code: int | None, job_case: JobCase, *, fault: JobFault, recovered_s: float
) -> list[str]:
    assert outcome.ended_s is not None
    # A launcher that is disconnected from all others for longer than it should wait has no node to restart on.
    has_lost_others = fault.node_index == MASTER_INDEX and any(TOO_FEW_NODES in line for _, line in outcome.lines)
    if job_case.policy != "end" and not has_lost_others:
        return [f"it ended with {code}, and should have started again"]
    errors = [] if code in (NODE_LOST, LOST) else [f"it ended with {code}, neither {NODE_LOST} nor {LOST}"]
    if outcome.ended_s < 0:
        return [*errors, "it ended before the fault"]
    limit_s = REACTION_TIMEOUT_S + (recovered_s if fault.node_index == MASTER_INDEX else 0.0)
    return errors if outcome.ended_s <= limit_s else [*errors, f"it ended {outcome.ended_s:.0f} s after the fault"]


def _awaited_nodes(text: Sequence[str]) -> int:
    """Return the number of nodes for which the launcher waited; 0 if it never waited.

    A node may have left the list before the job started.
    """
    pattern = r"; waiting at most .* s for (\d+) node"
    node_counts = [int(match[1]) for line in text if (match := re.search(pattern, line))]
    return node_counts[0] if node_counts else 0


def _last_attempt(text: Sequence[str]) -> tuple[int, int]:
    """Return the last attempt's number of ranks, and how many of them finished."""
    starts = [number for number, line in enumerate(text) if line.startswith(RESTART_PREFIX)]
    last = text[starts[-1] if starts else 0 :]
    worlds = [int(match[1]) for line in last if (match := re.search(r" joins (\d+) ranks$", line))]
    return (worlds[-1] if worlds else 0), sum(line.endswith(" done") for line in last)
