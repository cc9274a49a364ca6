"""The checkpoints that a training goes on from after it was interrupted.

Every machine keeps its own, so that none of them is needed in particular, nor a disk that they share.
They are copied and written beside the training, which goes on meanwhile, and they are gone
when the training has come to its end. A machine that is cut off then still has its own, so that the
others note which training that was. One machine can have its newest in S3 too (trainer.mirror).
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from trainer.checkpoint import (
    Checkpoint,
    Description,
    describe,
    load,
    remove_unfinished,
    replacing,
    save,
    second_name,
)
from trainer.errors import TrainerError
from trainer.mirror import Mirror
from trainer.progress import Progress

log = logging.getLogger(__name__)

KEPT: Final = 2
"""The newest, and the one before in case the newest turns out to be damaged."""


class Keeper:
    """The files of one process.

    ``PREFIX-resume-STARTED-EPOCH-SAMPLES.npz``, ``PREFIX-best.npz`` and ``.PREFIX-finished``.
    """

    def __init__(self, prefix: str, *, mirror: Mirror | None = None) -> None:
        self.prefix = prefix
        self._directory = Path(prefix).expanduser().parent
        self._begin = f"{Path(prefix).name}-resume-"
        self._best = self._directory / f"{Path(prefix).name}-best.npz"
        self._mark = self._directory / f".{Path(prefix).name}-finished"
        self._mirror = mirror
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        self._clear_up()

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that can be read; TrainerError when S3, which may have it, does not answer."""
        if self._mirror is not None:
            own = max((path.name for path in self._paths()), default="")
            self._mirror.fetch_newer(self._begin, than=own, into=self._directory)
        for path in sorted(self._paths(), reverse=True):
            with _failing_is_a_warning():
                return load(path)
        return None

    def best(self) -> Description | None:
        """What the best network so far is of."""
        if self._best.exists():
            with _failing_is_a_warning():
                return describe(self._best)
        return None

    def keep(self, take: Callable[[], Checkpoint], *, is_best: bool = False) -> None:
        """Write the checkpoint that ``take`` returns, both beside the training; waits for the one before."""
        self.wait()
        self._writing = self._writer.submit(self._write, take, is_best)

    def keep_best(self, path: Path) -> None:
        """Let the checkpoint in this file be the best."""
        second_name(path, self._best)

    def wait(self) -> None:
        """Return when the last checkpoint is written. One that cannot be is a warning: the one before is there."""
        if self._writing is not None:
            with _failing_is_a_warning():
                self._writing.result()
            self._writing = None

    def leave(self) -> None:
        """Return when the last checkpoint is wherever it is to be: this training goes on another time."""
        self.wait()
        if self._mirror is not None:
            self._mirror.leave(max(self._paths(), default=None))

    def publish(self, path: Path) -> str:
        """Bring the end of the training, and the best of it, to where they are wanted; returns where the end is."""
        if self._mirror is None:
            return str(path)
        self._mirror.publish(self._best)
        return self._mirror.publish(path)

    def finish(self, started: float) -> None:
        """Note that the training that began at `started` is over, and remove its checkpoints but the best."""
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
        if self._mirror is not None:
            with _failing_is_a_warning():
                self._mirror.forget(self._begin)

    def _write(self, take: Callable[[], Checkpoint], is_best: bool) -> None:
        checkpoint = take()
        path = self._directory / f"{self._begin}{_name(checkpoint.description.progress)}.npz"
        save(path, checkpoint)
        if is_best:
            self.keep_best(path)
        if self._mirror is not None:
            self._mirror.offer(path)
        # By time, and not by name: a clock that was wrong may have begun a later training.
        others = sorted((other for other in self._paths() if other != path), key=_modified)
        for old in others[: 1 - KEPT]:
            old.unlink(missing_ok=True)

    def _clear_up(self) -> None:
        """Remove what processes that were killed on this machine have left half-written."""
        with _failing_is_a_warning():
            remove_unfinished(self._directory, self._begin.removesuffix("resume-"))

    def _paths(self) -> Iterator[Path]:
        return (path for path in self._directory.glob("*.npz") if path.name.startswith(self._begin))


@contextlib.contextmanager
def _failing_is_a_warning() -> Iterator[None]:
    try:
        yield
    except TrainerError as error:
        log.warning("%s", error)


def _name(place: Progress) -> str:
    """Names sort as their places do."""
    return f"{place.started:017.6f}-{place.epoch:04d}-{place.samples:09d}"


def _modified(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
