"""Write a run's metrics for other programs, on rank 0: JSON lines, and TensorBoard's event files."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

from trainer.errors import TrainerError, UsageError

log = logging.getLogger(__name__)

Metrics = Mapping[str, float]
"""Metrics by TensorBoard's names, in which a slash makes groups."""


class MetricWriter(Protocol):
    """Writes metrics to one destination."""

    def write(self, metrics: Metrics, *, epoch: int, samples: int) -> None:
        """Write metrics from the moment when all ranks had trained on ``samples`` in total, over all epochs."""

    def close(self) -> None:
        """Flush and close."""


class MetricWriters:
    """Writers of this rank; only rank 0 has any."""

    def __init__(self, writers: Sequence[MetricWriter] = ()) -> None:
        self._writers = list(writers)

    def write(self, metrics: Metrics, *, epoch: int, samples: int) -> None:
        """Write metrics with every writer; see MetricWriter."""
        for writer in tuple(self._writers):
            try:
                writer.write(metrics, epoch=epoch, samples=samples)
            except OSError as error:
                # A full disk must not end the run.
                log.warning("stopped writing metrics to %s: %s", writer, error.strerror)
                self._writers.remove(writer)
                with suppress(OSError):
                    writer.close()

    def __enter__(self) -> "MetricWriters":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers:
            try:
                writer.close()
            except OSError as error_at_end:
                log.warning("some metrics are missing from %s: %s", writer, error_at_end.strerror)


def open_writers(*, metrics: str | None, tensorboard: str | None) -> MetricWriters:
    """Open the file ``metrics`` and the directory ``tensorboard``, unless they are None.

    Raises TrainerError if they cannot be written, and UsageError without the package ``tensorboard``.
    """
    writers: list[MetricWriter] = []
    if metrics is not None:
        writers.append(JsonLines(Path(metrics).expanduser()))
    if tensorboard is not None:
        writers.append(TensorBoard(Path(tensorboard).expanduser()))
    return MetricWriters(writers)


class JsonLines:
    """Appends one JSON object per line (jsonlines.org) to those of earlier attempts."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered, so that a program that follows the file never reads half a line.
            self._file = path.open("ab", buffering=0)
            self._path = path
        except OSError as error:
            raise TrainerError(f"cannot write metrics to {path}: {error.strerror}") from error

    def __str__(self) -> str:
        return str(self._path)

    def write(self, metrics: Metrics, *, epoch: int, samples: int) -> None:
        """Append a line; see MetricWriter."""
        line = json.dumps({"time": time.time(), "epoch": epoch, "samples": samples, **metrics})
        self._file.write(f"{line}\n".encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoard:
    """Writes TensorBoard's events, by the number of samples, so that runs on more machines can be compared."""

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(f"--tensorboard needs a package, pip install tensorboard ({error})") from error
        try:
            self._writer = SummaryWriter(directory)
            self._directory = directory
        except OSError as error:
            raise TrainerError(f"cannot write TensorBoard's events to {directory}: {error.strerror}") from error

    def __str__(self) -> str:
        return str(self._directory)

    def write(self, metrics: Metrics, *, epoch: int, samples: int) -> None:
        """Add one scalar for each metric; see MetricWriter."""
        for name, value in {**metrics, "epoch": float(epoch)}.items():
            self._writer.add_scalar(name, value, samples)

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
