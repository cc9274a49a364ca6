"""Draw rounds of faults under jobs from a seed, and judge them by each job's output. Pure.

One fault hits several jobs at once, each in another phase and with another restart policy; each of these is a round.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar, get_args

from local.chaos.job_script import LOST
from local.faults.node_indexes import alias_of_slot

_Value = TypeVar("_Value")
Kind = Literal["kill", "freeze", "partition", "reboot"]
Moment = Literal["connecting", "meeting", "stepping"]
Wish = Literal["end", "fewer", "all"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)
WISHES: Final[tuple[Wish, ...]] = get_args(Wish)

ANSWER_S: Final = 60.0
"""How long after the fault a job may take to end or restart; one that waits for all nodes has until so long after the
cluster is whole."""
FEWEST: Final = 2
OPTIONS: Final[dict[Wish, tuple[str, ...]]] = {
    "end": (),
    "fewer": ("--max-restarts", "3", "--min-nodes", str(FEWEST), "--rejoin-timeout", "5"),
    "all": ("--max-restarts", "3", "--rejoin-timeout", "180"),
}
AGAIN: Final = "launch: restart "
"""Start of the launcher's line when a job restarts."""
ALONE: Final = f"; not restarted on 1 of at least {FEWEST} nodes; "
NODE_LOST: Final = 1
SESSION_LOST: Final = 255
"""Exit code of ssh itself: the user's session was on the node that failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Describe one job under one fault."""

    moment: Moment
    fraction: float
    """Point within that phase at which the fault comes, as a fraction of its length."""
    wish: Wish

    @property
    def is_detached(self) -> bool:
        """Return whether the job runs without the user's session, so that its record always says how it ended."""
        return self.moment == "meeting"

    @property
    def takes_kept(self) -> bool:
        """Return whether the job uses idle pooled connections; otherwise these stay idle and are hit by the fault."""
        return round(100 * self.fraction) % 2 == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """Describe one fault and the jobs that it hits."""

    kind: Kind
    slot: int
    rounds: tuple[Round, ...]

    @property
    def ends_launchers(self) -> bool:
        """Return whether the launchers and the user's sessions end with their node."""
        return self.slot == 1 and self.kind in ("kill", "reboot")

    def __str__(self) -> str:
        jobs = ", ".join(f"{one.moment} at {one.fraction:.2f} ({one.wish})" for one in self.rounds)
        return f"{self.kind} {alias_of_slot(self.slot)}; {jobs}"


def draw(seed: int, *, rounds: int, slots: Sequence[int]) -> tuple[Strike, ...]:
    """Draw rounds, three per fault: every kind and every node in turn, in random order."""
    dice = random.Random(seed)  # noqa: S311  (repeatable on purpose)
    strikes: list[Strike] = []
    kinds, targets = _in_turn(dice, KINDS), _in_turn(dice, slots)
    while left := rounds - sum(len(strike.rounds) for strike in strikes):
        wishes = dice.sample(WISHES, len(WISHES))
        moments = dice.sample(MOMENTS, len(MOMENTS)) if left < len(MOMENTS) else list(MOMENTS)
        jobs = [
            Round(moment=moment, fraction=round(dice.random(), 2), wish=wish)
            for moment, wish in zip(moments, wishes, strict=True)
        ]
        strikes.append(Strike(kind=next(kinds), slot=next(targets), rounds=tuple(jobs[:left])))
    return tuple(strikes)


def _in_turn(dice: random.Random, values: Sequence[_Value]) -> Iterator[_Value]:
    """Yield all values in random order, again and again."""
    while True:
        yield from dice.sample(values, len(values))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """Hold the end that a job's record reports."""

    state: str
    exit_code: int | None


@dataclass(kw_only=True, slots=True)
class Told:
    """Hold what was observed of a job, in seconds from the fault."""

    lines: list[tuple[float, str]] = field(default_factory=list)
    """Lines of its output, both streams."""
    ended_s: float | None = None
    code: int | None = None
    """Exit code of the session."""
    ending: Ending | None = None
    """None if it has no record or its node is gone."""


def judge(told: Told, one: Round, *, strike: Strike, whole_s: float) -> list[str]:
    """List what is wrong with a round, a line each; `whole_s` is when all nodes were back."""
    met = any(at < 0 and " meets " in line for at, line in told.lines)
    if one.moment != "connecting" and not met:
        return ["its ranks did not run when the fault came"]
    no_session = one.moment == "connecting" and strike.slot == 1 and told.code in (SESSION_LOST, None)
    if strike.ends_launchers and (met or no_session):
        return _judge_orphan(told, one, strike=strike)
    if no_session and told.ended_s is not None:
        return []
    ending = told.ending
    if told.ended_s is None or told.code is None:
        return ["it never ended"]
    if ending is None:
        return ["it has no record"]
    code = ending.exit_code if one.is_detached else told.code
    wrong = []
    if (ending.state, ending.exit_code) != ("FAILED" if code else "SUCCEEDED", code):
        wrong = [f"it ended with {code}, and its record says {ending.state}, {ending.exit_code}"]
    if code == 0:
        return wrong + _judge_success(told, one, strike=strike, whole_s=whole_s, met=met)
    return wrong + _judge_failure(told, code, one, strike=strike, whole_s=whole_s)


def _judge_orphan(told: Told, one: Round, *, strike: Strike) -> list[str]:
    """Judge a job whose launcher's node is gone, by its record if the node comes back."""
    if strike.kind == "kill":
        return []
    if told.ending is None:
        return [] if one.moment == "connecting" else ["it has no record"]
    # When the node shuts down in order, a logged-in user loses the session as on any other disconnect.
    right = ("FAILED",) if one.is_detached else ("FAILED", "CANCELLED")
    state = told.ending.state
    return [] if state in right else [f"its record says {state}, and not {' or '.join(right)}"]


def _judge_success(told: Told, one: Round, *, strike: Strike, whole_s: float, met: bool) -> list[str]:
    text = [line for _, line in told.lines]
    world, done = _last_attempt(text)
    wrong = [] if done >= world > 0 else [f"it ended with 0, and {done} of {world} ranks were done"]
    asked = _asked(text)
    least = min(FEWEST, asked) if one.wish == "fewer" else asked
    wrong += [] if world >= least else [f"it ended on {world} nodes, {least} were asked for"]
    again = [at for at, line in told.lines if at > 0 and line.startswith(AGAIN)]
    if met and not again:
        # All faults are longer than the heartbeat timeout after which a node counts as lost.
        wrong.append("it went on as if nothing had happened to its ranks")
    if again and one.wish == "end":
        wrong.append("it started again, and should have ended")
    # The launcher itself may have been frozen or cut off.
    limit_s = ANSWER_S + (whole_s if one.wish == "all" or strike.slot == 1 else 0.0)
    if again and min(again) > limit_s:
        wrong.append(f"it started again {min(again):.0f} s after the fault")
    return wrong


def _judge_failure(told: Told, code: int | None, one: Round, *, strike: Strike, whole_s: float) -> list[str]:
    assert told.ended_s is not None
    # A launcher that is cut off from all others for longer than it should wait has no node to restart on.
    alone = strike.slot == 1 and any(ALONE in line for _, line in told.lines)
    if one.wish != "end" and not alone:
        return [f"it ended with {code}, and should have started again"]
    wrong = [] if code in (NODE_LOST, LOST) else [f"it ended with {code}, neither {NODE_LOST} nor {LOST}"]
    if told.ended_s < 0:
        return [*wrong, "it ended before the fault"]
    limit_s = ANSWER_S + (whole_s if strike.slot == 1 else 0.0)
    return wrong if told.ended_s <= limit_s else [*wrong, f"it ended {told.ended_s:.0f} s after the fault"]


def _asked(text: Sequence[str]) -> int:
    """Return the number of nodes that the launcher waited for; 0 if it never waited.

    A node may have left the list before the job began.
    """
    found = [int(match[1]) for line in text if (match := re.search(r"; waiting at most .* s for (\d+) node", line))]
    return found[0] if found else 0


def _last_attempt(text: Sequence[str]) -> tuple[int, int]:
    """Return the last attempt's number of ranks, and how many of them finished."""
    starts = [number for number, line in enumerate(text) if line.startswith(AGAIN)]
    last = text[starts[-1] if starts else 0 :]
    worlds = [int(match[1]) for line in last if (match := re.search(r" meets (\d+)$", line))]
    return (worlds[-1] if worlds else 0), sum(line.endswith(" done") for line in last)
