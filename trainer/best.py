"""The network of a training's best epoch: a file on every machine that keeps checkpoints, and a copy of it in S3.

The copy carries a note of which training and which accuracy it is of, so that a new machine need not fetch it to know
what a later epoch has to be better than.
"""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from trainer.checkpoint import describe
from trainer.errors import TrainerError
from trainer.files import second_name, unfinished
from trainer.s3 import S3Folder

log = logging.getLogger(__name__)


class Score(NamedTuple):
    """What an epoch has come to."""

    started: float
    """When its training began; see trainer.progress."""
    accuracy: float
    """Of its validation."""


class Best:
    """``PREFIX-best.npz`` of one process; with a folder, in S3 too."""

    def __init__(self, path: Path, *, folder: S3Folder | None = None) -> None:
        self.path = path
        self._folder = folder
        self._in_s3: Score | None = None
        """As far as this process knows."""
        self._copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="best")
        self._copying: Future[None] | None = None

    def ask_s3(self) -> None:
        """Learn what the copy in S3 is of, where there is one; TrainerError when S3 does not answer."""
        if self._folder is not None:
            notes = self._folder.notes(self.path.name)
            if {"started", "accuracy"} <= notes.keys():
                self._in_s3 = Score(float(notes["started"]), float(notes["accuracy"]))

    def accuracy(self, *, of_training: float) -> float | None:
        """Of that training's best epoch that is here, or known to be in S3."""
        scores = (_score(self.path), self._in_s3)
        return max((score.accuracy for score in scores if score and score.started == of_training), default=None)

    def keep(self, path: Path) -> None:
        """Let the checkpoint in this file be the best, and copy it beside the training; TrainerError when it cannot be.

        A better one of the same training stays: in a directory that machines share, one of them may come late.
        """
        new, before = _score(path), _score(self.path)
        if new and before and new.started == before.started and new.accuracy < before.accuracy:
            return
        second_name(path, self.path)
        waits = self._copying is not None and not self._copying.running() and not self._copying.done()
        # A copy that has not begun will be of the file that is there by then.
        if self._folder is not None and not waits:
            self._copying = self._copier.submit(self._copy_beside, self._folder)

    def wait(self) -> None:
        """Return when nothing is copied any more."""
        if self._copying is not None:
            self._copying.result()

    def publish(self, best: Score) -> None:
        """Return when this one is in S3, if it is here; TrainerError when it cannot be copied."""
        self.wait()
        if self._folder is not None and self._in_s3 != best and _score(self.path) == best:
            self._copy(self._folder)

    def _copy_beside(self, folder: S3Folder) -> None:
        try:
            self._copy(folder)
        except TrainerError as error:
            # The machines have theirs, and the end of the training tries again.
            log.warning("%s", error)

    def _copy(self, folder: S3Folder) -> None:
        # A better one may take its place meanwhile; that one is made under the name that this would have once.
        held = unfinished(unfinished(self.path))
        second_name(self.path, held)
        try:
            score = _score(held)
            if score is not None and score != self._in_s3:
                notes = {name: repr(value) for name, value in score._asdict().items()}
                folder.store(held, self.path.name, notes=notes)
                self._in_s3 = score
        finally:
            held.unlink(missing_ok=True)


def _score(path: Path) -> Score | None:
    """What the checkpoint in this file has come to; one that cannot be read is none."""
    if path.exists():
        try:
            description = describe(path)
        except TrainerError as error:
            log.warning("%s", error)
        else:
            if description.validation_accuracy is not None:
                return Score(description.progress.started, description.validation_accuracy)
    return None
