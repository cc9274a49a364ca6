"""Measure the time of each phase of a step, and find a rank that the others wait for."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

Phase = Literal["data", "forward", "backward", "communication", "optimizer"]
SLOW: Final = 1.1
"""Multiple of the median above which a rank counts as slow; anything below is noise."""


class Phases(NamedTuple):
    """Seconds of each phase of a step, in order."""

    data: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    communication: float = 0.0
    optimizer: float = 0.0


class StepTimer:
    """Stopwatch that assigns all time to phases."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(Phases._fields, 0.0)
        self._at = clock()

    def start(self) -> None:
        """Restart the clock: the time since the last phase belongs to no phase."""
        self._at = self._clock()

    def end(self, phase: Phase) -> None:
        """Add the time since the end of the previous phase to ``phase``."""
        now = self._clock()
        self._seconds[phase] += now - self._at
        self._at = now

    def read_and_reset(self) -> Phases:
        """Return the seconds of each phase, and reset them."""
        taken, self._seconds = self._seconds, dict.fromkeys(Phases._fields, 0.0)
        return Phases(**taken)


def format_shares(seconds: Phases) -> str:
    """Return the share of each phase as text."""
    total = sum(seconds) or 1.0
    return " ".join(f"{phase}={value / total:.0%}" for phase, value in seconds._asdict().items())


def mean(ranks: Sequence[Phases]) -> Phases:
    """Return the mean over the ranks."""
    return Phases(*map(statistics.fmean, zip(*ranks, strict=True)))


def describe_slowest(ranks: Sequence[Phases]) -> str | None:
    """Describe the rank with the longest work of its own, if one stands out: the others wait for it in every step."""
    work_s = [sum(seconds) - seconds.communication for seconds in ranks]
    slowest, median = max(work_s), statistics.median_low(work_s)
    if not median or slowest <= SLOW * median:
        return None
    return f"rank {work_s.index(slowest)} takes {slowest / median:.2f} times as long as the median for its own work"
