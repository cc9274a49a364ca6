"""Test which checkpoints of a process are kept and loaded, and how failures to write them end."""

import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from trainer.backend import TrainingState
from trainer.checkpoint.completion_marker import CompletionMarker
from trainer.checkpoint.format import Checkpoint, CheckpointMetadata, load_checkpoint, save_checkpoint
from trainer.checkpoint.store import KEEP_LATEST, CheckpointStore
from trainer.errors import TrainerError
from trainer.progress import Progress


def checkpoint(*, run_started_at: float = 0, epoch: int = 0, samples: int = 0) -> Checkpoint:
    progress = Progress(run_started_at=run_started_at, epoch=epoch, samples=samples)
    state = TrainingState(weights={"a": np.full(1000, epoch)})
    return Checkpoint(metadata=CheckpointMetadata(settings={}, progress=progress), state=state)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path / "net"))


def newest(store: CheckpointStore) -> Progress:
    found = store.load_newest()
    assert found is not None
    return found.metadata.progress


def test_newest_checkpoint_is_the_latest_runs_last_position(store: CheckpointStore) -> None:
    assert store.load_newest() is None
    for run_started_at, epoch, samples in ((1, 9, 0), (2, 0, 64), (2, 0, 128)):
        store.save(partial(checkpoint, run_started_at=run_started_at, epoch=epoch, samples=samples))
    store.wait_until_written()
    assert newest(store) == Progress(run_started_at=2, samples=128)


def test_only_the_newest_checkpoints_stay_and_none_after_the_end(store: CheckpointStore, tmp_path: Path) -> None:
    (tmp_path / "net-0012.npz").write_text("a user's")
    for epoch in range(5):
        store.save(partial(checkpoint, epoch=epoch))
    store.wait_until_written()
    names = {f"net-resume-0000000000.000000-{epoch:04d}-000000000.npz" for epoch in range(5 - KEEP_LATEST, 5)}
    assert {path.name for path in tmp_path.iterdir()} == names | {"net-0012.npz"}
    store.delete_resume_checkpoints()
    assert [path.name for path in tmp_path.iterdir()] == ["net-0012.npz"]


def test_completed_run_leaves_only_its_marker(store: CheckpointStore, tmp_path: Path) -> None:
    assert store.marker() == CompletionMarker()
    store.save(partial(checkpoint, run_started_at=0.1))
    store.set_marker(CompletionMarker(run_started_at=0.1, job_id="j"))
    store.delete_resume_checkpoints()
    assert store.marker() == CompletionMarker(run_started_at=0.1, job_id="j")
    assert [path.name for path in tmp_path.iterdir()] == [".net-finished"]


def test_checkpoint_belongs_to_the_run_with_the_same_start(store: CheckpointStore, tmp_path: Path) -> None:
    end = tmp_path / "net-0003.npz"
    assert not store.is_from_run(end, run_started_at=0.1)
    save_checkpoint(end, checkpoint(run_started_at=0.1, epoch=3))
    assert store.is_from_run(end, run_started_at=0.1)
    assert not store.is_from_run(end, run_started_at=0.2)
    end.write_bytes(end.read_bytes()[:100])
    assert not store.is_from_run(end, run_started_at=0.1)


def test_only_the_newest_checkpoint_is_read_completely(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def note(path: Path) -> Checkpoint:
        read.append(path.name)
        return load_checkpoint(path)

    for epoch in (1, 2):
        store.save(partial(checkpoint, epoch=epoch))
    store.wait_until_written()
    monkeypatch.setattr("trainer.checkpoint.store.load_checkpoint", note)
    assert newest(store).epoch == 2
    assert read == ["net-resume-0000000000.000000-0002-000000000.npz"]


@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_damaged_checkpoint_gives_way_to_the_previous_one(
    store: CheckpointStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    for epoch in (1, 2):
        store.save(partial(checkpoint, epoch=epoch))
    store.wait_until_written()
    path = tmp_path / "net-resume-0000000000.000000-0002-000000000.npz"
    content = path.read_bytes()
    place = content.index(np.full(1000, 2).tobytes())
    path.write_bytes(content[:-100] if damage == "cut off" else content[:place] + b"?" + content[place + 1 :])
    with caplog.at_level(logging.WARNING):
        assert newest(store).epoch == 1
    assert f"cannot read checkpoint {path}" in caplog.text


def test_full_disk_skips_a_checkpoint_but_not_training(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.save(partial(checkpoint, epoch=1))
    store.wait_until_written()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    store.save(partial(checkpoint, epoch=2))
    store.wait_until_written()
    assert "No space left on device; training continues without it" in caplog.text
    assert newest(store).epoch == 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Replace save_checkpoint() by a write that blocks until the event is set."""
    event = threading.Event()

    def write_slowly(path: Path, checkpoint: Checkpoint) -> None:
        assert event.wait(60)
        save_checkpoint(path, checkpoint)

    monkeypatch.setattr("trainer.checkpoint.store.save_checkpoint", write_slowly)
    yield event
    event.set()


def test_slow_disk_is_named_and_times_out_once(
    store: CheckpointStore,
    tmp_path: Path,
    disk: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("trainer.checkpoint.store.WARN_S", 0.01)
    monkeypatch.setattr("trainer.checkpoint.store.WRITE_TIMEOUT_S", 0.1)
    store.save(partial(checkpoint, epoch=1))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(TrainerError, match=f"^a checkpoint could not be written to {tmp_path} within 0 s$"),
    ):
        store.save(partial(checkpoint, epoch=2))
    assert f"still writing the previous checkpoint to {tmp_path} (slow disk); waiting up to 0 s" in caplog.text
    # The failed wait is not repeated on exit.
    store.wait_until_written()


def test_slow_disk_delays_only_the_next_checkpoint(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, disk = threading.Event(), threading.Event()

    def write_slowly(path: Path, checkpoint: Checkpoint) -> None:
        writing.set()
        assert disk.wait(60)
        save_checkpoint(path, checkpoint)

    monkeypatch.setattr("trainer.checkpoint.store.save_checkpoint", write_slowly)
    # The first save returns; the disk is released only afterwards.
    assert not store.is_writing
    store.save(partial(checkpoint, epoch=1))
    assert writing.wait(60)
    assert store.is_writing
    second = threading.Thread(target=lambda: store.save(partial(checkpoint, epoch=2)))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    disk.set()
    second.join(60)
    store.wait_until_written()
    assert newest(store).epoch == 2


def test_unexpected_error_of_the_writer_is_raised(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, checkpoint: Checkpoint) -> None:
        raise ValueError("ours")

    monkeypatch.setattr("trainer.checkpoint.store.save_checkpoint", fail)
    store.save(partial(checkpoint, epoch=1))
    with pytest.raises(ValueError, match="ours"):
        store.save(partial(checkpoint, epoch=2))


def test_temporary_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    here, gone = os.uname().nodename, 2**22 + 1
    names = [
        f".net-resume-1.npz.{here}-{gone}.tmp",
        f".net-0012.npz.{here}-{gone}.tmp",
        f".net-resume-1.npz.{here}-{gone}.tmp.1aB2c3D4",
        f".net-resume-1.npz.{here}-{os.getpid()}.tmp",
        f".net-resume-1.npz.{here}-{os.getpid()}.tmp.1aB2c3D4",
        f".net-resume-1.npz.elsewhere-{gone}.tmp",
        f".other-0012.npz.{here}-{gone}.tmp",
    ]
    for name in names:
        (tmp_path / name).touch()
    CheckpointStore(str(tmp_path / "net"))
    assert {path.name for path in tmp_path.iterdir()} == set(names[3:])


def test_new_checkpoint_stays_with_a_wrong_clock(store: CheckpointStore, tmp_path: Path) -> None:
    for epoch in (1, 2):
        store.save(partial(checkpoint, epoch=epoch))
    store.wait_until_written()
    for path in tmp_path.iterdir():
        os.utime(path, (2e9, 2e9))
    store.save(partial(checkpoint, epoch=3))
    store.wait_until_written()
    assert newest(store).epoch == 3


def test_older_checkpoint_with_a_later_name_is_deleted_first(store: CheckpointStore, tmp_path: Path) -> None:
    store.save(partial(checkpoint, run_started_at=9e9))
    store.wait_until_written()
    [wrong] = tmp_path.iterdir()
    os.utime(wrong, (1, 1))
    for epoch in (1, 2):
        store.save(partial(checkpoint, run_started_at=5, epoch=epoch))
    store.wait_until_written()
    kept = sorted(load_checkpoint(path).metadata.progress.epoch for path in tmp_path.iterdir())
    assert (kept, wrong.exists()) == ([1, 2], False)
