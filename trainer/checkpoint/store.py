"""Store the checkpoints of one process: those that an interrupted training resumes from, and the best.

Every machine keeps its own, so that a training survives the loss of any machine and needs no shared disk; where
machines share the directory, rank 0 alone writes (shared_dir). A thread copies and writes them while the training goes
on. When the training ends all but the best are deleted; a completion marker then tells the other ranks that a
checkpoint on a machine that was cut off is out of date. One machine can also keep its newest in S3 (s3_uploader).
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Final

from trainer.atomic_file import remove_temporaries
from trainer.checkpoint.best import BestCheckpoint, Score
from trainer.checkpoint.completion_marker import CompletionMarker, read_marker, write_marker
from trainer.checkpoint.format import (
    Checkpoint,
    load_checkpoint,
    load_description,
    make_checkpoint_directory,
    save_checkpoint,
)
from trainer.checkpoint.prefix_lock import lock_prefix, training_name
from trainer.checkpoint.s3_uploader import S3Checkpoints
from trainer.config.settings import TrainConfig
from trainer.distributed.world import World
from trainer.errors import TrainerError
from trainer.progress import Progress
from trainer.s3 import S3Folder
from trainer.timeouts import WRITE_S

log = logging.getLogger(__name__)

KEPT: Final = 2
"""The newest checkpoint, and the one before in case the newest turns out to be damaged."""
WARN_S: Final = 5.0
"""Wait this long for a slow disk before warning about it."""


def open_store(config: TrainConfig, world: World) -> "CheckpointStore | None":
    """Open this rank's store. None when the first process of its machine writes for it: all train one model."""
    if world.local_rank and config.distributed:
        return None
    prefix = config.checkpoint_prefix
    make_checkpoint_directory(Path(prefix).expanduser().parent)
    if not config.distributed and world.world_size > 1:
        prefix = f"{prefix}-rank{world.rank}"
    # Held until the process ends.
    lock_prefix(prefix, training=training_name(world.job, os.environ))
    uploader = None
    # All machines keep the same checkpoints, so one copy in S3 is enough.
    if config.s3_folder is not None and (world.rank == 0 or not config.distributed):
        uploader = S3Checkpoints(S3Folder(config.s3_folder), every_s=config.checkpoint_seconds)
    return CheckpointStore(prefix, uploader=uploader)


@contextlib.contextmanager
def flush_on_exit(store: "CheckpointStore | None") -> Iterator[None]:
    """Leave the block only when the last checkpoint is written, and after an error also copied to S3."""
    try:
        yield
    except BaseException:
        if store is not None:
            store.flush()
        raise
    if store is not None:
        store.wait()


class CheckpointStore:
    """The files of one process.

    ``PREFIX-resume-STARTED-EPOCH-SAMPLES.npz``, ``PREFIX-best.npz`` and ``.PREFIX-finished``.
    """

    def __init__(self, prefix: str, *, uploader: S3Checkpoints | None = None) -> None:
        self.prefix = prefix
        self._directory = Path(prefix).expanduser().parent
        self._name_prefix = f"{Path(prefix).name}-resume-"
        best = self._directory / f"{Path(prefix).name}-best.npz"
        self._best = BestCheckpoint(best, folder=uploader.folder if uploader else None)
        self._marker = self._directory / f".{Path(prefix).name}-finished"
        self._uploader = uploader
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        with _warn_on_failure():
            remove_temporaries(self._directory, f"{Path(prefix).name}-")

    def newest(self) -> Checkpoint | None:
        """Return the newest readable checkpoint; TrainerError when S3, which may hold it, does not answer."""
        if self._uploader is not None:
            own = max((path.name for path in self._paths()), default="")
            self._uploader.download_newer(self._name_prefix, than=own, into=self._directory)
        for path in sorted(self._paths(), reverse=True):
            with _warn_on_failure():
                return load_checkpoint(path)
        return None

    @property
    def best_path(self) -> Path:
        """Return the path of the best checkpoint so far."""
        return self._best.path

    def find_best(self) -> None:
        """Look up the best checkpoint in S3; TrainerError when S3 does not answer."""
        self._best.look_up_in_s3()

    def best(self, *, of_training: float) -> float | None:
        """Return the best validation accuracy of the training that started then, if its checkpoint is stored."""
        return self._best.accuracy(of_training=of_training)

    def save(self, take: Callable[[], Checkpoint], *, is_best: bool = False) -> None:
        """Write the checkpoint that ``take`` returns, in another thread; wait for the previous one first.

        A failure is a warning: the training goes on, and the previous checkpoints stay.
        """
        self.wait()
        self._writing = self._writer.submit(self._write, take, is_best)

    @property
    def is_writing(self) -> bool:
        """Whether ``save`` would have to wait."""
        return self._writing is not None and not self._writing.done()

    def save_best(self, path: Path) -> None:
        """Make the checkpoint in this file the best. A failure is a warning: the previous best stays."""
        with _warn_on_failure("the best before stays"):
            self._best.save(path)

    def wait(self) -> None:
        """Return when the last checkpoint is written; TrainerError after half an hour."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        if not wait_for([writing], WARN_S).done:
            log.warning("waiting for the checkpoint before, %s is slow: at most %.0f s", self._directory, WRITE_S)
            if not wait_for([writing], WRITE_S - WARN_S).done:
                raise TrainerError(f"a checkpoint could not be written to {self._directory} within {WRITE_S:.0f} s")
        writing.result()

    def flush(self) -> None:
        """Return when the last checkpoint is written and copied to S3: this training resumes another time."""
        self.wait()
        if self._uploader is not None:
            self._uploader.flush(max(self._paths(), default=None))
        self._best.wait()

    def publish(self, path: Path, *, best: Score) -> str:
        """Copy the final and the best checkpoint to S3, if asked for; return where the final one is."""
        if self._uploader is None:
            return str(path)
        self._best.publish(best)
        return self._uploader.publish(path)

    def marker(self) -> CompletionMarker:
        """Return the marker of the last completed training."""
        return read_marker(self._marker)

    def set_marker(self, marker: CompletionMarker) -> None:
        """Mark a training as completed."""
        with _warn_on_failure():
            write_marker(self._marker, marker)

    def holds(self, path: Path, *, of_training: float) -> bool:
        """Return whether this file is a checkpoint of the training that started then."""
        if path.exists():
            with _warn_on_failure():
                return load_description(path).progress.started == of_training
        return False

    def delete_all(self) -> None:
        """Delete all checkpoints but the best: the training is over, or starts anew."""
        self.wait()
        for path in self._paths():
            path.unlink(missing_ok=True)
        if self._uploader is not None:
            with _warn_on_failure():
                self._uploader.delete_all(self._name_prefix)

    def _write(self, take: Callable[[], Checkpoint], is_best: bool) -> None:
        checkpoint = take()
        path = self._directory / f"{self._name_prefix}{_format_place(checkpoint.description.progress)}.npz"
        with _warn_on_failure("the training goes on without it"):
            save_checkpoint(path, checkpoint)
            if is_best:
                self.save_best(path)
            # By time, not by name: with a wrong clock an older training may have a later name.
            others = sorted((other for other in self._paths() if other != path), key=_modified)
            for old in others[: 1 - KEPT]:
                old.unlink(missing_ok=True)
            if self._uploader is not None:
                self._uploader.offer(path)

    def _paths(self) -> Iterator[Path]:
        return (path for path in self._directory.glob("*.npz") if path.name.startswith(self._name_prefix))


@contextlib.contextmanager
def _warn_on_failure(consequence: str = "") -> Iterator[None]:
    """Turn an error into a warning, with its consequence."""
    try:
        yield
    except (TrainerError, OSError) as error:
        log.warning("%s", f"{error}; {consequence}" if consequence else error)


def _format_place(progress: Progress) -> str:
    """Return a name that sorts as the place does."""
    return f"{progress.started:017.6f}-{progress.epoch:04d}-{progress.samples:09d}"


def _modified(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
