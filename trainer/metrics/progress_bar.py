"""Draw a progress bar on a terminal; log files and the launcher's prefixed output get none.

Epoch[1]  42% |============>                 | 840/2000 3051 samples/s loss=0.1234 0:07 left
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, NamedTuple, TextIO

from trainer.progress import Progress

EVERY_S: Final = 0.1
"""Seconds between drawings; a step of a small network is shorter."""
WIDTH: Final = 30
"""Width of the bar in columns."""
DEFAULT_COLUMNS: Final = 80
CLEAR: Final = "\r\x1b[K"
"""Move to the beginning of the line and erase it (ECMA-48, EL)."""


class FirstDrawing(NamedTuple):
    """Time and number of samples when an epoch was first drawn."""

    at: float = 0.0
    samples: int = 0


class ProgressBar:
    """Progress bar on the last line of a terminal; without a stream it draws nothing."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] | None = None,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._columns = columns or (lambda: _read_columns(stream))
        self._epoch: int | None = None
        self._first = FirstDrawing()
        self._drawn_at = float("-inf")
        self._is_drawn = False

    def show(self, progress: Progress, *, total: int) -> None:
        """Draw the progress in the epoch of ``total`` samples, unless it was drawn just before."""
        if self._stream is None or self._clock() - self._drawn_at < EVERY_S:
            return
        now = self._drawn_at = self._clock()
        if self._epoch != progress.epoch:
            self._epoch, self._first = progress.epoch, FirstDrawing(now, progress.samples)
        seconds, samples = now - self._first.at, progress.samples - self._first.samples
        line = describe(progress, total=total, speed=samples / seconds if seconds > 0 and samples else None)
        # Cut the line: a wrapped line could not be erased.
        self._stream.write(CLEAR + line[: self._columns() - 1])
        self._stream.flush()
        self._is_drawn = True

    def clear(self) -> None:
        """Erase the bar to make room for a log line."""
        if self._stream is not None and self._is_drawn:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._is_drawn = False

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]  # from Python 3.11 on
    """Writes log lines in place of the bar."""

    def __init__(self, stream: TextIO, bar: ProgressBar) -> None:
        super().__init__(stream)
        self._bar = bar

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; the next step draws the bar again."""
        self._bar.clear()
        super().emit(record)


def make_progress_bar(stream: TextIO, *, rank: int, environment: Mapping[str, str] = os.environ) -> ProgressBar:
    """Return a bar that draws if this is rank 0 and the stream is a terminal that can erase a line."""
    draws = rank == 0 and stream.isatty() and environment.get("TERM", "dumb") != "dumb"
    return ProgressBar(stream if draws else None)


def describe(progress: Progress, *, total: int, speed: float | None) -> str:
    """Return the bar's line; ``speed``, in samples per second of all ranks, is None at first."""
    done = progress.samples / total
    bar = ("=" * int(done * WIDTH) + ">")[:WIDTH].ljust(WIDTH)
    line = f"Epoch[{progress.epoch}] {done:4.0%} |{bar}| {progress.samples}/{total}"
    if speed is not None:
        line += f" {speed:.0f} samples/s"
    line += f" loss={progress.loss_sum / max(1, progress.samples):.4f}"
    if speed is not None:
        minutes, seconds = divmod(round((total - progress.samples) / speed), 60)
        line += f" {minutes}:{seconds:02} left"
    return line


def _read_columns(stream: TextIO | None) -> int:
    """Return the width of the terminal, or DEFAULT_COLUMNS if it is unknown."""
    try:
        return (stream and os.get_terminal_size(stream.fileno()).columns) or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS
