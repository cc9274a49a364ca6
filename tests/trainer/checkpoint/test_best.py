"""Test the file of the best epoch and its copy in S3."""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from trainer.backend import TrainingState
from trainer.checkpoint.best import BestCheckpoint, Score
from trainer.checkpoint.format import Checkpoint, CheckpointMetadata, load_metadata, save_checkpoint
from trainer.errors import TrainerError
from trainer.progress import Progress
from trainer.s3 import S3Folder


class Folder:
    """A folder that records each upload: the accuracy in the file, and in its metadata."""

    def __init__(self, *failures: str) -> None:
        self.stored: list[tuple[float | None, str]] = []
        self.begun, self.open = threading.Event(), threading.Event()
        self.open.set()
        self._failures = list(failures)

    def upload(self, path: Path, name: str, *, metadata: Mapping[str, str]) -> None:
        self.begun.set()
        assert self.open.wait(60)
        if self._failures:
            raise TrainerError(self._failures.pop())
        assert (name, metadata["started"]) == ("net-best.npz", "5.5")
        self.stored.append((load_metadata(path).validation_accuracy, metadata["accuracy"]))


def checkpoint_file(directory: Path, accuracy: float, *, run_started_at: float = 5.5) -> Path:
    path = directory / f"net-{run_started_at}-{accuracy}.npz"
    metadata = CheckpointMetadata(
        settings={}, progress=Progress(run_started_at=run_started_at), validation_accuracy=accuracy
    )
    save_checkpoint(path, Checkpoint(metadata=metadata, state=TrainingState(weights={"a": np.zeros(9)})))
    return path


def best_in(directory: Path, folder: Folder | None = None) -> BestCheckpoint:
    return BestCheckpoint(directory / "net-best.npz", folder=cast(S3Folder, folder))


def test_accuracy_is_found_by_start_of_run(tmp_path: Path) -> None:
    best = best_in(tmp_path)
    assert best.accuracy(run_started_at=5.5) is None
    best.save(checkpoint_file(tmp_path, 0.9))
    assert [best.accuracy(run_started_at=run_started_at) for run_started_at in (5.5, 5)] == [0.9, None]


@pytest.mark.parametrize(("late", "stays"), [(0.8, 0.9), (0.95, 0.95)])
def test_late_machine_does_not_replace_a_better_checkpoint(tmp_path: Path, late: float, stays: float) -> None:
    best_in(tmp_path).save(checkpoint_file(tmp_path, 0.9))
    other = best_in(tmp_path)
    other.save(checkpoint_file(tmp_path, late))
    assert other.accuracy(run_started_at=5.5) == stays


def test_new_run_replaces_a_better_checkpoint(tmp_path: Path) -> None:
    best = best_in(tmp_path)
    best.save(checkpoint_file(tmp_path, 0.9))
    best.save(checkpoint_file(tmp_path, 0.1, run_started_at=6))
    assert best.accuracy(run_started_at=6) == 0.1


def test_damaged_best_checkpoint_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    best = best_in(tmp_path)
    best.path.write_bytes(b"PK")
    best.save(checkpoint_file(tmp_path, 0.1))
    assert "cannot read checkpoint" in caplog.text
    assert best.accuracy(run_started_at=5.5) == 0.1


def test_slow_upload_does_not_block_and_the_newest_follows(tmp_path: Path) -> None:
    folder = Folder()
    best = best_in(tmp_path, folder)
    folder.open.clear()
    best.save(checkpoint_file(tmp_path, 0.1))
    assert folder.begun.wait(60)
    for accuracy in (0.2, 0.3):
        best.save(checkpoint_file(tmp_path, accuracy))
    folder.open.set()
    best.wait_until_uploaded()
    # Each upload is complete and matches its metadata, and overtaken checkpoints are not uploaded.
    assert folder.stored == [(0.1, "0.1"), (0.3, "0.3")]
    assert not list(tmp_path.glob(".*"))


def test_worse_checkpoint_is_not_uploaded(tmp_path: Path) -> None:
    folder = Folder()
    best_in(tmp_path).save(checkpoint_file(tmp_path, 0.5))
    best_in(tmp_path, folder).upload_if_missing(Score(5.5, 0.9))
    assert folder.stored == []


def test_failing_upload_is_a_warning_until_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Folder("again", "at first")
    best = best_in(tmp_path, folder)
    with caplog.at_level(logging.WARNING):
        best.save(checkpoint_file(tmp_path, 0.9))
        best.wait_until_uploaded()
    assert caplog.messages == ["at first"]
    with pytest.raises(TrainerError, match="again"):
        best.upload_if_missing(Score(5.5, 0.9))
    for _ in range(2):
        best.upload_if_missing(Score(5.5, 0.9))
    assert folder.stored == [(0.9, "0.9")]
    assert not list(tmp_path.glob(".*"))
