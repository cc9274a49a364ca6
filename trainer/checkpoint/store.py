"""Store the checkpoints of one process: the newest ones, to resume from, and the best.

Every machine stores the checkpoints, so that a run survives the loss of any machine without a shared disk. If machines
share the directory, only rank 0 writes (shared_dir). A thread copies and writes them while training continues. A
completed run deletes all but the best and leaves a completion marker, by which the ranks ignore a checkpoint on a
machine that was unreachable at that time. One machine can also upload to S3: two independent uploads, of the newest
checkpoint (S3Checkpoints) and of the best (BestCheckpoint).
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
    load_metadata,
    make_checkpoint_directory,
    save_checkpoint,
)
from trainer.checkpoint.prefix_lock import lock_prefix, run_name
from trainer.checkpoint.s3_checkpoints import S3Checkpoints
from trainer.config.settings import TrainConfig
from trainer.distributed.world import World
from trainer.errors import TrainerError
from trainer.progress import Progress
from trainer.s3 import S3Folder
from trainer.timeouts import WRITE_TIMEOUT_S

log = logging.getLogger(__name__)

KEEP_LATEST: Final = 2
"""Number of checkpoints to keep: the newest, and the one before in case the newest is damaged."""
WARN_S: Final = 5.0
"""Seconds to wait for a slow disk before warning about it."""


def open_checkpoint_store(config: TrainConfig, world: World) -> "CheckpointStore | None":
    """Open this rank's store. None on every rank but the machine's first if all ranks train one model.

    One checkpoint per machine is then enough.
    """
    if world.local_rank and config.distributed:
        return None
    prefix = config.checkpoint_prefix
    make_checkpoint_directory(Path(prefix).expanduser().parent)
    if not config.distributed and world.world_size > 1:
        prefix = f"{prefix}-rank{world.rank}"
    # The descriptor is never closed, so the lock lasts until the process ends.
    lock_prefix(prefix, run=run_name(world.job_id, os.environ))
    s3_folder = None
    # All machines store the same checkpoints, so only one uploads.
    if config.s3_folder is not None and (world.rank == 0 or not config.distributed):
        s3_folder = S3Folder(config.s3_folder)
    return CheckpointStore(prefix, s3_folder=s3_folder, upload_every_s=config.checkpoint_seconds)


@contextlib.contextmanager
def finish_saving_on_exit(store: "CheckpointStore | None") -> Iterator[None]:
    """Wait after the block until the last checkpoint is written and, after an error, also uploaded to S3."""
    try:
        yield
    except BaseException:
        if store is not None:
            store.upload_newest_and_wait()
        raise
    if store is not None:
        store.wait_until_written()


class CheckpointStore:
    """Checkpoint files of one process.

    ``PREFIX-resume-STARTED-EPOCH-SAMPLES.npz``, ``PREFIX-best.npz`` and ``.PREFIX-finished``.
    """

    def __init__(self, prefix: str, *, s3_folder: S3Folder | None = None, upload_every_s: float = 0.0) -> None:
        """Upload to the folder in S3, if any: independently the newest checkpoint and the best."""
        self.prefix = prefix
        self._directory = Path(prefix).expanduser().parent
        self._name_prefix = f"{Path(prefix).name}-resume-"
        best = self._directory / f"{Path(prefix).name}-best.npz"
        self._best = BestCheckpoint(best, folder=s3_folder)
        self._marker = self._directory / f".{Path(prefix).name}-finished"
        self._s3_checkpoints = S3Checkpoints(s3_folder, every_s=upload_every_s) if s3_folder else None
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None
        with _warn_on_failure():
            remove_temporaries(self._directory, f"{Path(prefix).name}-")

    def load_newest(self) -> Checkpoint | None:
        """Load the newest readable checkpoint; download it first if S3 has a newer one.

        Raises TrainerError if S3 does not answer.
        """
        if self._s3_checkpoints is not None:
            newest = max((path.name for path in self._paths()), default="")
            self._s3_checkpoints.download_newer(self._name_prefix, than=newest, into=self._directory)
        for path in sorted(self._paths(), reverse=True):
            with _warn_on_failure():
                return load_checkpoint(path)
        return None

    @property
    def best_path(self) -> Path:
        """Return the path of the best checkpoint so far."""
        return self._best.path

    def read_best_score_from_s3(self) -> None:
        """Read the score of the best checkpoint in S3; TrainerError if S3 does not answer."""
        self._best.read_score_from_s3()

    def best_accuracy(self, *, run_started_at: float) -> float | None:
        """Return the best validation accuracy of the run with this start time, if its checkpoint is stored."""
        return self._best.accuracy(run_started_at=run_started_at)

    def save(self, make_checkpoint: Callable[[], Checkpoint], *, is_best: bool = False) -> None:
        """Write the checkpoint that ``make_checkpoint`` returns, in another thread, after the previous one.

        A failure is a warning: training continues, and the previous checkpoints remain.
        """
        self.wait_until_written()
        self._writing = self._writer.submit(self._write, make_checkpoint, is_best)

    @property
    def is_writing(self) -> bool:
        """Return True if ``save`` would have to wait."""
        return self._writing is not None and not self._writing.done()

    def save_best(self, path: Path) -> None:
        """Make the checkpoint in this file the best. A failure is a warning: the previous best remains."""
        with _warn_on_failure("the previous best stays"):
            self._best.save(path)

    def wait_until_written(self) -> None:
        """Wait until the last checkpoint is written; TrainerError after half an hour."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        if not wait_for([writing], WARN_S).done:
            directory = self._directory.absolute()
            log.warning(
                "still writing the previous checkpoint to %s (slow disk); waiting up to %.0f s",
                directory,
                WRITE_TIMEOUT_S,
            )
            if not wait_for([writing], WRITE_TIMEOUT_S - WARN_S).done:
                raise TrainerError(f"a checkpoint could not be written to {directory} within {WRITE_TIMEOUT_S:.0f} s")
        writing.result()

    def upload_newest_and_wait(self) -> None:
        """Wait until the last checkpoint is written and uploaded to S3, for a run that will resume later."""
        self.wait_until_written()
        if self._s3_checkpoints is not None:
            self._s3_checkpoints.upload_newest_and_wait(max(self._paths(), default=None))
        self._best.wait_until_uploaded()

    def upload_final(self, path: Path, *, best: Score) -> str:
        """Upload the final and the best checkpoint if there is an S3 folder; return the final one's path or URL."""
        if self._s3_checkpoints is None:
            return str(path)
        self._best.upload_if_missing(best)
        return self._s3_checkpoints.upload_final(path)

    def marker(self) -> CompletionMarker:
        """Return the marker of the last completed run."""
        return read_marker(self._marker)

    def set_marker(self, marker: CompletionMarker) -> None:
        """Mark a run as completed."""
        with _warn_on_failure():
            write_marker(self._marker, marker)

    def is_from_run(self, path: Path, *, run_started_at: float) -> bool:
        """Return True if this file is a checkpoint of the run with this start time."""
        if path.exists():
            with _warn_on_failure():
                return load_metadata(path).progress.run_started_at == run_started_at
        return False

    def delete_resume_checkpoints(self) -> None:
        """Delete the checkpoints to resume from, after a completed run or before a new one; keep the best."""
        self.wait_until_written()
        for path in self._paths():
            path.unlink(missing_ok=True)
        if self._s3_checkpoints is not None:
            with _warn_on_failure():
                self._s3_checkpoints.delete_with_prefix(self._name_prefix)

    def _write(self, make_checkpoint: Callable[[], Checkpoint], is_best: bool) -> None:
        checkpoint = make_checkpoint()
        path = self._directory / f"{self._name_prefix}{_format_position(checkpoint.metadata.progress)}.npz"
        with _warn_on_failure("training continues without it"):
            save_checkpoint(path, checkpoint)
            if is_best:
                self.save_best(path)
            # By modification time: with a wrong clock an older run may have a later name.
            others = sorted((other for other in self._paths() if other != path), key=_modified)
            excess = len(others) - (KEEP_LATEST - 1)
            for outdated in others[: max(0, excess)]:
                outdated.unlink(missing_ok=True)
            if self._s3_checkpoints is not None:
                self._s3_checkpoints.upload_if_due(path)

    def _paths(self) -> Iterator[Path]:
        return (path for path in self._directory.glob("*.npz") if path.name.startswith(self._name_prefix))


@contextlib.contextmanager
def _warn_on_failure(consequence: str = "") -> Iterator[None]:
    """Turn a TrainerError or OSError in the block into a warning that states the consequence."""
    try:
        yield
    except (TrainerError, OSError) as error:
        log.warning("%s", f"{error}; {consequence}" if consequence else error)


def _format_position(progress: Progress) -> str:
    """Return a file name that sorts like the position."""
    return f"{progress.run_started_at:017.6f}-{progress.epoch:04d}-{progress.samples:09d}"


def _modified(path: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0
