"""The checkpoints that a training goes on from after it was interrupted.

Every machine keeps its own, so that none of them is needed in particular, nor a disk that they share.
They are written beside the training, which only waits for a copy of its state, and they are gone
when the training has come to its end. A machine that is cut off then still has its own, so that the
others note which training that was.
"""

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from trainer.checkpoint import Checkpoint, describe, load, replacing, save
from trainer.errors import TrainerError

log = logging.getLogger(__name__)

KEPT: Final = 2
"""The newest, and the one before in case the newest turns out to be damaged."""


class Keeper:
    """The files of one process: ``PREFIX-resume-EPOCH-SAMPLES.npz`` and ``.PREFIX-finished``."""

    def __init__(self, prefix: str) -> None:
        self._directory = Path(prefix).expanduser().parent
        self._begin = f"{Path(prefix).name}-resume-"
        self._mark = self._directory / f".{Path(prefix).name}-finished"
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that can be read; the arrays of no other are, as they may fill the memory."""
        places = []
        for path in self._paths():
            with _failing_is_a_warning():
                places.append((describe(path).progress.place, path))
        for _, path in sorted(places, reverse=True):
            with _failing_is_a_warning():
                return load(path)
        return None

    def keep(self, checkpoint: Checkpoint) -> None:
        """Write `checkpoint` beside the training; waits for the one before to be written."""
        self.wait()
        self._writing = self._writer.submit(self._write, checkpoint)

    def wait(self) -> None:
        """Return when the last checkpoint is written. One that cannot be is a warning: the one before is there."""
        if self._writing is not None:
            with _failing_is_a_warning():
                self._writing.result()
            self._writing = None

    def finish(self, started: float) -> None:
        """Note that the training that began at `started` is over, and remove its checkpoints."""
        with _failing_is_a_warning(), replacing(self._mark, what="mark") as file:
            file.write(repr(started).encode())
        self.forget()

    def finished(self) -> float:
        """When the last training that is over began; 0 when there was none."""
        # Without a mark that can be read a training only may go on that need not.
        with contextlib.suppress(OSError, ValueError):
            return float(self._mark.read_text())
        return 0.0

    def forget(self) -> None:
        """Remove all: the training is over, or is to begin anew."""
        self.wait()
        for path in self._paths():
            path.unlink(missing_ok=True)

    def _write(self, checkpoint: Checkpoint) -> None:
        place = checkpoint.description.progress
        save(self._directory / f"{self._begin}{place.epoch:04d}-{place.samples:09d}.npz", checkpoint)
        for path in sorted(self._paths(), key=_modified)[:-KEPT]:
            path.unlink(missing_ok=True)

    def _paths(self) -> Iterator[Path]:
        return (path for path in self._directory.glob("*.npz") if path.name.startswith(self._begin))


@contextlib.contextmanager
def _failing_is_a_warning() -> Iterator[None]:
    try:
        yield
    except TrainerError as error:
        log.warning("%s", error)


def _modified(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
