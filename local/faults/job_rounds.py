"""Rounds of faults under jobs: drawn from a seed, and judged by what each job said. Pure.

One fault strikes several jobs at once, each at another moment of its life and each with another wish for what should
become of it; each of these is a round.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar, get_args

from local.faults.job_script import LOST
from local.faults.slots import alias_of_slot

_Value = TypeVar("_Value")
Kind = Literal["kill", "freeze", "partition", "reboot"]
Moment = Literal["connecting", "meeting", "stepping"]
Wish = Literal["end", "fewer", "all"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)
WISHES: Final[tuple[Wish, ...]] = get_args(Wish)

ANSWER_S: Final = 60.0
"""In which a job ends, or starts again, after the fault; when it waits for all nodes, after the cluster is whole."""
FEWEST: Final = 2
OPTIONS: Final[dict[Wish, tuple[str, ...]]] = {
    "end": (),
    "fewer": ("--max-restarts", "3", "--min-nodes", str(FEWEST), "--rejoin-timeout", "5"),
    "all": ("--max-restarts", "3", "--rejoin-timeout", "180"),
}
AGAIN: Final = "launch: restart "
"""The beginning of what the launcher says when a job starts again."""
ALONE: Final = f"; not restarted on 1 of at least {FEWEST} nodes; "
NODE_LOST: Final = 1
SESSION_LOST: Final = 255
"""Ssh's own exit code: the user's session was on the node that was struck."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One job under one fault."""

    moment: Moment
    fraction: float
    """How far into that moment the fault comes, of its length."""
    wish: Wish

    @property
    def takes_kept(self) -> bool:
        """Whether it takes the connections that wait for it. Beside the others these wait, and are struck with it."""
        return round(100 * self.fraction) % 2 == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Strike:
    """One fault and the jobs that it strikes."""

    kind: Kind
    slot: int
    rounds: tuple[Round, ...]

    def __str__(self) -> str:
        jobs = ", ".join(f"{one.moment} at {one.fraction:.2f} ({one.wish})" for one in self.rounds)
        return f"{self.kind} {alias_of_slot(self.slot)}; {jobs}"


def draw(seed: int, *, rounds: int, slots: Sequence[int]) -> tuple[Strike, ...]:
    """So many rounds, three a fault: each kind and each node in turn, in an order of the dice's."""
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
    """All of them in an order of the dice's, and again in another."""
    while True:
        yield from dice.sample(values, len(values))


@dataclass(kw_only=True, slots=True)
class Told:
    """What came of a job, in seconds from the fault."""

    lines: list[tuple[float, str]] = field(default_factory=list)
    """What it said, both streams."""
    ended_s: float | None = None
    code: int | None = None


def judge(told: Told, one: Round, *, strike: Strike, whole_s: float) -> list[str]:
    """What is wrong with a round, a line each; `whole_s` is when all nodes were there again."""
    if strike.slot == 1 and (strike.kind in ("kill", "reboot") or told.code == SESSION_LOST):
        # The launcher and the user's session are gone with the node. That nothing runs on is seen from outside.
        return []
    if told.ended_s is None or told.code is None:
        return ["it never ended"]
    text = [line for _, line in told.lines]
    world, done = _last_attempt(text)
    if told.code == 0:
        wrong = [] if done >= world > 0 else [f"it ended with 0, and {done} of {world} ranks were done"]
        asked = _asked(text)
        least = min(FEWEST, asked) if one.wish == "fewer" else asked
        wrong += [] if world >= least else [f"it ended on {world} nodes, {least} were asked for"]
        return wrong + _late(told, one, strike=strike, whole_s=whole_s)
    # A launcher that is cut off from all others for longer than it was to wait has nowhere to start again.
    alone = strike.slot == 1 and any(ALONE in line for line in text)
    if one.wish != "end" and not alone:
        return [f"it ended with {told.code}, and should have started again"]
    wrong = [] if told.code in (NODE_LOST, LOST) else [f"it ended with {told.code}, neither {NODE_LOST} nor {LOST}"]
    limit_s = ANSWER_S + (whole_s if strike.slot == 1 else 0.0)
    return wrong if told.ended_s <= limit_s else [*wrong, f"it ended {told.ended_s:.0f} s after the fault"]


def _late(told: Told, one: Round, *, strike: Strike, whole_s: float) -> list[str]:
    """Whether a job that started again took too long to. The launcher itself may have been frozen or cut off."""
    again = [at for at, line in told.lines if line.startswith(AGAIN)]
    limit_s = ANSWER_S + (whole_s if one.wish == "all" or strike.slot == 1 else 0.0)
    if again and min(again) > limit_s:
        return [f"it started again {min(again):.0f} s after the fault"]
    return []


def _asked(text: Sequence[str]) -> int:
    """On how many nodes it was to run: on all of the list, which a node may have left before the job began.

    0 when it never had to wait for any.
    """
    found = [int(match[1]) for line in text if (match := re.search(r"; waiting at most .* s for (\d+) node", line))]
    return found[0] if found else 0


def _last_attempt(text: Sequence[str]) -> tuple[int, int]:
    """How many ranks it had, and how many of them were done."""
    starts = [number for number, line in enumerate(text) if line.startswith(AGAIN)]
    last = text[starts[-1] if starts else 0 :]
    worlds = [int(match[1]) for line in last if (match := re.search(r" meets (\d+)$", line))]
    return (worlds[-1] if worlds else 0), sum(line.endswith(" done") for line in last)
