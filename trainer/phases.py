"""Where the time of a training's steps goes, and which rank the others wait for."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

COMMUNICATION: Final = "communication"
PHASES: Final = ("data", "forward", "backward", COMMUNICATION, "optimizer")
"""Of a step, in order."""
SLOW: Final = 1.1
"""Times the median: less is noise."""


class Phases:
    """A stopwatch that always runs, for some phase."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._at = clock()

    def start(self) -> None:
        """Count from now on; what was since the last phase's end belongs to none."""
        self._at = self._clock()

    def end(self, phase: str) -> None:
        """What was since the end of the phase before belongs to this one."""
        now = self._clock()
        self._seconds[phase] += now - self._at
        self._at = now

    def take(self) -> dict[str, float]:
        """Seconds of each phase since they were taken last."""
        taken, self._seconds = self._seconds, dict.fromkeys(PHASES, 0.0)
        return taken


def shares(seconds: Mapping[str, float]) -> str:
    """Say which part of the time each phase took."""
    total = sum(seconds.values()) or 1.0
    return " ".join(f"{phase}={value / total:.0%}" for phase, value in seconds.items())


def mean(ranks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of each phase of a rank in the middle."""
    return {phase: statistics.fmean(seconds[phase] for seconds in ranks) for phase in PHASES}


def describe_slowest(ranks: Sequence[Mapping[str, float]]) -> str | None:
    """Name the rank that takes longest for its own work, if one stands out; the others wait for it at every step."""
    own = [sum(seconds.values()) - seconds[COMMUNICATION] for seconds in ranks]
    slowest, median = max(own), statistics.median_low(own)
    if not median or slowest <= SLOW * median:
        return None
    return f"rank {own.index(slowest)} takes {slowest / median:.2f} times as long as the median for its own work"
