"""A training's figures for programs: lines of JSON, and TensorBoard's event files. Rank 0 writes them."""

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

Figures = Mapping[str, float]
"""By name, as TensorBoard has them: a slash makes groups."""


class Sink(Protocol):
    """Takes figures of a moment of the training."""

    def write(self, figures: Figures, *, epoch: int, samples: int) -> None:
        """Write figures of the moment when all ranks had trained on ``samples``, all epochs together."""

    def close(self) -> None:
        """Write what is not written yet."""


class Records:
    """All sinks of this rank: none, mostly."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = list(sinks)

    def write(self, figures: Figures, *, epoch: int, samples: int) -> None:
        """See Sink."""
        for sink in tuple(self._sinks):
            try:
                sink.write(figures, epoch=epoch, samples=samples)
            except OSError as error:
                # The training is worth more than its figures.
                log.warning("no more figures in %s: %s", sink, error.strerror)
                self._sinks.remove(sink)
                with suppress(OSError):
                    sink.close()

    def __enter__(self) -> "Records":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sink in self._sinks:
            try:
                sink.close()
            except OSError as error_at_end:
                log.warning("not all figures are in %s: %s", sink, error_at_end.strerror)


def open_records(*, metrics: str | None, tensorboard: str | None) -> Records:
    """Records in the file ``metrics`` and the directory ``tensorboard``, where they are given.

    Raises TrainerError when they cannot be written, and UsageError without the package ``tensorboard``.
    """
    sinks: list[Sink] = []
    if metrics is not None:
        sinks.append(JsonLines(Path(metrics).expanduser()))
    if tensorboard is not None:
        sinks.append(TensorBoard(Path(tensorboard).expanduser()))
    return Records(sinks)


class JsonLines:
    """One JSON object a line (jsonlines.org), after those of the attempts before."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Each line at once, so that who follows the file never sees half of one.
            self._file = path.open("ab", buffering=0)
            self._path = path
        except OSError as error:
            raise TrainerError(f"cannot write metrics to {path}, {error.strerror}") from error

    def __str__(self) -> str:
        return str(self._path)

    def write(self, figures: Figures, *, epoch: int, samples: int) -> None:
        """See Sink."""
        line = json.dumps({"time": time.time(), "epoch": epoch, "samples": samples, **figures})
        self._file.write(f"{line}\n".encode())

    def close(self) -> None:
        """See Sink."""
        self._file.close()


class TensorBoard:
    """TensorBoard's own writer; the number of samples is its step, so that runs on more machines can be compared."""

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(f"--tensorboard needs a package, pip install tensorboard ({error})") from error
        try:
            self._writer = SummaryWriter(directory)
            self._directory = directory
        except OSError as error:
            raise TrainerError(f"cannot write TensorBoard's events to {directory}, {error.strerror}") from error

    def __str__(self) -> str:
        return str(self._directory)

    def write(self, figures: Figures, *, epoch: int, samples: int) -> None:
        """See Sink."""
        for name, value in {**figures, "epoch": float(epoch)}.items():
            self._writer.add_scalar(name, value, samples)

    def close(self) -> None:
        """See Sink."""
        self._writer.close()
