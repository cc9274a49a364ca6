"""Keep the checkpoint of a training run's best epoch: a file on every machine with a store, and a copy in S3.

The copy's metadata contain its run and accuracy, so that a new machine knows what a later epoch must beat without
downloading it. s3_checkpoints copies the other checkpoints.
"""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from trainer.atomic_file import link_or_copy, temporary_path
from trainer.checkpoint.format import load_metadata
from trainer.errors import TrainerError
from trainer.s3 import S3Folder

log = logging.getLogger(__name__)


class Score(NamedTuple):
    """The result of an epoch."""

    run_started_at: float
    """Start time of its run; see Progress.run_started_at."""
    accuracy: float
    """Validation accuracy."""


class BestCheckpoint:
    """The file ``PREFIX-best.npz`` of one process, and its copy in S3 when there is a folder."""

    def __init__(self, path: Path, *, folder: S3Folder | None = None) -> None:
        self.path = path
        self._folder = folder
        self._in_s3: Score | None = None
        """Score of the copy in S3, as far as this process knows."""
        self._uploader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="best")
        self._uploading: Future[None] | None = None

    def read_score_from_s3(self) -> None:
        """Read the score of the copy in S3, if there is one; TrainerError when S3 does not answer."""
        if self._folder is not None:
            metadata = self._folder.metadata(self.path.name)
            if {"started", "accuracy"} <= metadata.keys():
                self._in_s3 = Score(float(metadata["started"]), float(metadata["accuracy"]))

    def accuracy(self, *, run_started_at: float) -> float | None:
        """Return the accuracy of the run's best epoch that is stored here or known to be in S3."""
        scores = (_score(self.path), self._in_s3)
        return max(
            (score.accuracy for score in scores if score and score.run_started_at == run_started_at), default=None
        )

    def save(self, path: Path) -> None:
        """Make the checkpoint in this file the best, and upload it in another thread; TrainerError on failure.

        Keep the old one if it is better and from the same run: in a shared directory, another machine may write late.
        """
        new, previous = _score(path), _score(self.path)
        if new and previous and new.run_started_at == previous.run_started_at and new.accuracy < previous.accuracy:
            return
        link_or_copy(path, self.path)
        is_queued = self._uploading is not None and not self._uploading.running() and not self._uploading.done()
        # A queued upload reads the file when it starts, so it already includes this one.
        if self._folder is not None and not is_queued:
            self._uploading = self._uploader.submit(self._upload_or_warn, self._folder)

    def wait_until_uploaded(self) -> None:
        """Wait until no upload is running."""
        if self._uploading is not None:
            self._uploading.result()

    def upload_if_missing(self, best: Score) -> None:
        """Upload the checkpoint with this score if this machine has it and S3 does not; TrainerError on failure."""
        self.wait_until_uploaded()
        if self._folder is not None and self._in_s3 != best and _score(self.path) == best:
            self._upload(self._folder)

    def _upload_or_warn(self, folder: S3Folder) -> None:
        try:
            self._upload(folder)
        except TrainerError as error:
            # A warning is enough: the machines have the file, and the run retries at its end.
            log.warning("%s", error)

    def _upload(self, folder: S3Folder) -> None:
        # Upload from a second link, because save() may replace the file in the meantime. save() uses
        # temporary_path(self.path), so this link needs another name.
        link = temporary_path(temporary_path(self.path))
        link_or_copy(self.path, link)
        try:
            score = _score(link)
            if score is not None and score != self._in_s3:
                metadata = {"started": repr(score.run_started_at), "accuracy": repr(score.accuracy)}
                folder.upload(link, self.path.name, metadata=metadata)
                self._in_s3 = score
        finally:
            link.unlink(missing_ok=True)


def _score(path: Path) -> Score | None:
    """Return the score of the checkpoint in this file; None if it is missing or damaged."""
    if path.exists():
        try:
            metadata = load_metadata(path)
        except TrainerError as error:
            log.warning("%s", error)
        else:
            if metadata.validation_accuracy is not None:
                return Score(metadata.progress.run_started_at, metadata.validation_accuracy)
    return None
