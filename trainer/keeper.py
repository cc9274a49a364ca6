"""The checkpoints that a training goes on from after it was interrupted.

Every machine keeps its own, so that none of them is needed in particular, nor a disk that they share; where they share
one, rank 0's writes (trainer.sharing). The best of them stays, on all machines (trainer.best).
They are copied and written beside the training, which goes on meanwhile, and they are gone
when the training has come to its end. A machine that is cut off then still has its own, so that the
others note which training that was. One machine can have its newest in S3 too (trainer.mirror).
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Final

from trainer.best import Best, Score
from trainer.checkpoint import Checkpoint, describe, load, save
from trainer.engines.patience import WRITE_S
from trainer.errors import TrainerError
from trainer.files import remove_unfinished
from trainer.mark import Mark, read_mark, write_mark
from trainer.mirror import Mirror
from trainer.progress import Progress

log = logging.getLogger(__name__)

KEPT: Final = 2
"""The newest, and the one before in case the newest turns out to be damaged."""
SAY_S: Final = 5.0
"""What a rank waits for without a word."""


class Keeper:
    """The files of one process.

    ``PREFIX-resume-STARTED-EPOCH-SAMPLES.npz``, ``PREFIX-best.npz`` and ``.PREFIX-finished``.
    """

    def __init__(self, prefix: str, *, mirror: Mirror | None = None) -> None:
        self.prefix = prefix
        self._directory = Path(prefix).expanduser().parent
        self._begin = f"{Path(prefix).name}-resume-"
        best = self._directory / f"{Path(prefix).name}-best.npz"
        self._best = Best(best, folder=mirror.folder if mirror else None)
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

    @property
    def best_path(self) -> Path:
        """Where the best network so far is."""
        return self._best.path

    def find_best(self) -> None:
        """Learn what the best in S3 is; TrainerError when S3, which may have one, does not answer."""
        self._best.ask_s3()

    def best(self, *, of_training: float) -> float | None:
        """Validation accuracy of the best epoch of the training that began then, of which there is the network."""
        return self._best.accuracy(of_training=of_training)

    def keep(self, take: Callable[[], Checkpoint], *, is_best: bool = False) -> None:
        """Write the checkpoint that ``take`` returns, both beside the training; waits for the one before.

        One that cannot be written is a warning: the training goes on, and those before stay.
        """
        self.wait()
        self._writing = self._writer.submit(self._write, take, is_best)

    @property
    def is_writing(self) -> bool:
        """Whether ``keep`` would have to wait."""
        return self._writing is not None and not self._writing.done()

    def keep_best(self, path: Path) -> None:
        """Let the checkpoint in this file be the best. A warning when it cannot be: the one before still is."""
        with _failing_is_a_warning("the best before stays"):
            self._best.keep(path)

    def wait(self) -> None:
        """Return when the last checkpoint is written; TrainerError when it is not within half an hour."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        if not wait_for([writing], SAY_S).done:
            log.warning("waiting for the checkpoint before, %s is slow: at most %.0f s", self._directory, WRITE_S)
            if not wait_for([writing], WRITE_S - SAY_S).done:
                raise TrainerError(f"a checkpoint could not be written to {self._directory} within {WRITE_S:.0f} s")
        writing.result()

    def leave(self) -> None:
        """Return when the last checkpoint is wherever it is to be: this training goes on another time."""
        self.wait()
        if self._mirror is not None:
            self._mirror.leave(max(self._paths(), default=None))
        self._best.wait()

    def publish(self, path: Path, *, best: Score) -> str:
        """Bring the end of the training, and the best of it, to where they are wanted; returns where the end is."""
        if self._mirror is None:
            return str(path)
        self._best.publish(best)
        return self._mirror.publish(path)

    def mark(self) -> Mark:
        """The last training that is over."""
        return read_mark(self._mark)

    def set_mark(self, over: Mark) -> None:
        """Note that this training is over."""
        with _failing_is_a_warning():
            write_mark(self._mark, over)

    def has(self, path: Path, *, of_training: float) -> bool:
        """Whether this file is a checkpoint of the training that began then."""
        if path.exists():
            with _failing_is_a_warning():
                return describe(path).progress.started == of_training
        return False

    def forget(self) -> None:
        """Remove all but the best: the training is over, or is to begin anew."""
        self.wait()
        for path in self._paths():
            path.unlink(missing_ok=True)
        if self._mirror is not None:
            with _failing_is_a_warning():
                self._mirror.forget(self._begin)

    def _write(self, take: Callable[[], Checkpoint], is_best: bool) -> None:
        checkpoint = take()
        path = self._directory / f"{self._begin}{_name(checkpoint.description.progress)}.npz"
        with _failing_is_a_warning("the training goes on without it"):
            save(path, checkpoint)
            if is_best:
                self.keep_best(path)
            # By time, and not by name: a clock that was wrong may have begun a later training.
            others = sorted((other for other in self._paths() if other != path), key=_modified)
            for old in others[: 1 - KEPT]:
                old.unlink(missing_ok=True)
            if self._mirror is not None:
                self._mirror.offer(path)

    def _clear_up(self) -> None:
        """Remove what processes that were killed on this machine have left half-written."""
        with _failing_is_a_warning():
            remove_unfinished(self._directory, self._begin.removesuffix("resume-"))

    def _paths(self) -> Iterator[Path]:
        return (path for path in self._directory.glob("*.npz") if path.name.startswith(self._begin))


@contextlib.contextmanager
def _failing_is_a_warning(then: str = "") -> Iterator[None]:
    """``then`` is what follows from it."""
    try:
        yield
    except (TrainerError, OSError) as error:
        log.warning("%s", f"{error}; {then}" if then else error)


def _name(place: Progress) -> str:
    """Names sort as their places do."""
    return f"{place.started:017.6f}-{place.epoch:04d}-{place.samples:09d}"


def _modified(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
