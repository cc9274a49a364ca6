"""A progress bar for who sits before a terminal; logs and the launcher's prefixed lines have none.

Epoch[1]  42% |============>                 | 840/2000 3051 samples/s loss=0.1234 0:07 left
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, TextIO

from trainer.progress import Progress

EVERY_S: Final = 0.1
"""Between two drawings: a step of a small network takes less."""
WIDTH: Final = 30
"""Of the bar itself, in columns."""
USUAL_COLUMNS: Final = 80
CLEAR: Final = "\r\x1b[K"
"""To the beginning of the line, and erase it (ECMA-48, EL)."""


class Bar:
    """The last line of a terminal; without a stream it does nothing."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] | None = None,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._columns = columns or (lambda: _columns_of(stream))
        self._epoch: int | None = None
        self._began = (0.0, 0)
        """When this epoch's first drawing was, and of how many samples."""
        self._drawn_at = float("-inf")
        self._drawn = False

    def show(self, progress: Progress, *, total: int) -> None:
        """Draw how far the epoch of ``total`` samples has come, unless that was just done."""
        if self._stream is None or self._clock() - self._drawn_at < EVERY_S:
            return
        now = self._drawn_at = self._clock()
        if self._epoch != progress.epoch:
            self._epoch, self._began = progress.epoch, (now, progress.samples)
        seconds, samples = now - self._began[0], progress.samples - self._began[1]
        line = describe(progress, total=total, speed=samples / seconds if seconds > 0 and samples else None)
        # A line that wraps could not be erased.
        self._stream.write(CLEAR + line[: self._columns() - 1])
        self._stream.flush()
        self._drawn = True

    def clear(self) -> None:
        """Make room for a line of the log."""
        if self._stream is not None and self._drawn:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._drawn = False

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


class Lines(logging.StreamHandler):  # type: ignore[type-arg]  # from Python 3.11 on
    """Writes the log's lines where the bar is."""

    def __init__(self, stream: TextIO, bar: Bar) -> None:
        super().__init__(stream)
        self._bar = bar

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; the bar comes back with the next step."""
        self._bar.clear()
        super().emit(record)


def bar_for(stream: TextIO, *, rank: int, environment: Mapping[str, str] = os.environ) -> Bar:
    """Return a bar if this is rank 0 and writes to a terminal that can erase a line."""
    shown = rank == 0 and stream.isatty() and environment.get("TERM", "dumb") != "dumb"
    return Bar(stream if shown else None)


def describe(progress: Progress, *, total: int, speed: float | None) -> str:
    """Say how far an epoch has come; ``speed``, in samples a second of all ranks, is known only after a while."""
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


def _columns_of(stream: TextIO | None) -> int:
    """Return the width of the terminal; one that does not say it is as wide as most."""
    try:
        return (stream and os.get_terminal_size(stream.fileno()).columns) or USUAL_COLUMNS
    except (OSError, ValueError):
        return USUAL_COLUMNS
