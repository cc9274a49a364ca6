import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from trainer.checkpoint import Checkpoint, Description, load, save
from trainer.engines import State
from trainer.errors import TrainerError
from trainer.keeper import KEPT, Keeper
from trainer.mark import Mark
from trainer.progress import Progress


def checkpoint(*, started: float = 0, epoch: int = 0, samples: int = 0) -> Checkpoint:
    progress = Progress(started=started, epoch=epoch, samples=samples)
    state = State(weights={"a": np.full(1000, epoch)})
    return Checkpoint(description=Description(settings={}, progress=progress), state=state)


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(str(tmp_path / "net"))


def newest(keeper: Keeper) -> Progress:
    found = keeper.newest()
    assert found is not None
    return found.description.progress


def test_the_newest_is_that_of_the_latest_training_and_its_last_place(keeper: Keeper) -> None:
    assert keeper.newest() is None
    for started, epoch, samples in ((1, 9, 0), (2, 0, 64), (2, 0, 128)):
        keeper.keep(partial(checkpoint, started=started, epoch=epoch, samples=samples))
    keeper.wait()
    assert newest(keeper) == Progress(started=2, samples=128)


def test_only_the_last_ones_stay_and_none_after_the_end(keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "net-0012.npz").write_text("a user's")
    for epoch in range(5):
        keeper.keep(partial(checkpoint, epoch=epoch))
    keeper.wait()
    names = {f"net-resume-0000000000.000000-{epoch:04d}-000000000.npz" for epoch in range(5 - KEPT, 5)}
    assert {path.name for path in tmp_path.iterdir()} == names | {"net-0012.npz"}
    keeper.forget()
    assert [path.name for path in tmp_path.iterdir()] == ["net-0012.npz"]


def test_a_finished_training_leaves_a_mark_and_nothing_else(keeper: Keeper, tmp_path: Path) -> None:
    assert keeper.mark() == Mark()
    keeper.keep(partial(checkpoint, started=0.1))
    keeper.set_mark(Mark(started=0.1, job="j"))
    keeper.forget()
    assert keeper.mark() == Mark(started=0.1, job="j")
    assert [path.name for path in tmp_path.iterdir()] == [".net-finished"]


def test_knows_of_which_training_a_file_is(keeper: Keeper, tmp_path: Path) -> None:
    end = tmp_path / "net-0003.npz"
    assert not keeper.has(end, of_training=0.1)
    save(end, checkpoint(started=0.1, epoch=3))
    assert keeper.has(end, of_training=0.1)
    assert not keeper.has(end, of_training=0.2)
    end.write_bytes(end.read_bytes()[:100])
    assert not keeper.has(end, of_training=0.1)


def test_only_the_newest_is_read_whole(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def note(path: Path) -> Checkpoint:
        read.append(path.name)
        return load(path)

    for epoch in (1, 2):
        keeper.keep(partial(checkpoint, epoch=epoch))
    keeper.wait()
    monkeypatch.setattr("trainer.keeper.load", note)
    assert newest(keeper).epoch == 2
    assert read == ["net-resume-0000000000.000000-0002-000000000.npz"]


@pytest.mark.parametrize("damage", ["cut off", "changed"])
def test_a_damaged_one_gives_way_to_the_one_before(
    keeper: Keeper, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    for epoch in (1, 2):
        keeper.keep(partial(checkpoint, epoch=epoch))
    keeper.wait()
    path = tmp_path / "net-resume-0000000000.000000-0002-000000000.npz"
    content = path.read_bytes()
    place = content.index(np.full(1000, 2).tobytes())
    path.write_bytes(content[:-100] if damage == "cut off" else content[:place] + b"?" + content[place + 1 :])
    with caplog.at_level(logging.WARNING):
        assert newest(keeper).epoch == 1
    assert f"cannot read checkpoint {path}" in caplog.text


def test_a_full_disk_costs_a_checkpoint_and_not_the_training(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper.keep(partial(checkpoint, epoch=1))
    keeper.wait()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    keeper.keep(partial(checkpoint, epoch=2))
    keeper.wait()
    assert "No space left on device; the training goes on without it" in caplog.text
    assert newest(keeper).epoch == 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that writes nothing until the event."""
    event = threading.Event()

    def write_slowly(path: Path, checkpoint: Checkpoint) -> None:
        assert event.wait(60)
        save(path, checkpoint)

    monkeypatch.setattr("trainer.keeper.save", write_slowly)
    yield event
    event.set()


def test_a_disk_that_is_too_slow_is_named_and_waited_for_once(
    keeper: Keeper,
    tmp_path: Path,
    disk: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("trainer.keeper.SAY_S", 0.01)
    monkeypatch.setattr("trainer.keeper.WRITE_S", 0.1)
    keeper.keep(partial(checkpoint, epoch=1))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(TrainerError, match=f"^a checkpoint could not be written to {tmp_path} within 0 s$"),
    ):
        keeper.keep(partial(checkpoint, epoch=2))
    assert f"waiting for the checkpoint before, {tmp_path} is slow: at most 0 s" in caplog.text
    # On the way out: nothing is waited for any more.
    keeper.wait()


def test_a_slow_disk_holds_no_step_but_the_next_checkpoint(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, disk = threading.Event(), threading.Event()

    def write_slowly(path: Path, checkpoint: Checkpoint) -> None:
        writing.set()
        assert disk.wait(60)
        save(path, checkpoint)

    monkeypatch.setattr("trainer.keeper.save", write_slowly)
    # Returns, and only here is the disk let go.
    assert not keeper.is_writing
    keeper.keep(partial(checkpoint, epoch=1))
    assert writing.wait(60)
    assert keeper.is_writing
    second = threading.Thread(target=lambda: keeper.keep(partial(checkpoint, epoch=2)))
    second.start()
    second.join(0.2)
    assert second.is_alive()
    disk.set()
    second.join(60)
    keeper.wait()
    assert newest(keeper).epoch == 2


def test_an_error_that_nobody_expected_comes_out(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, checkpoint: Checkpoint) -> None:
        raise ValueError("ours")

    monkeypatch.setattr("trainer.keeper.save", fail)
    keeper.keep(partial(checkpoint, epoch=1))
    with pytest.raises(ValueError, match="ours"):
        keeper.keep(partial(checkpoint, epoch=2))


def test_what_killed_processes_of_this_machine_left_is_removed(tmp_path: Path) -> None:
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
    Keeper(str(tmp_path / "net"))
    assert {path.name for path in tmp_path.iterdir()} == set(names[3:])


def test_the_one_just_written_stays_whatever_the_clock_says(keeper: Keeper, tmp_path: Path) -> None:
    for epoch in (1, 2):
        keeper.keep(partial(checkpoint, epoch=epoch))
    keeper.wait()
    for path in tmp_path.iterdir():
        os.utime(path, (2e9, 2e9))
    keeper.keep(partial(checkpoint, epoch=3))
    keeper.wait()
    assert newest(keeper).epoch == 3


def test_what_a_wrong_clock_has_named_later_goes_before_what_was_written_later(keeper: Keeper, tmp_path: Path) -> None:
    keeper.keep(partial(checkpoint, started=9e9))
    keeper.wait()
    [wrong] = tmp_path.iterdir()
    os.utime(wrong, (1, 1))
    for epoch in (1, 2):
        keeper.keep(partial(checkpoint, started=5, epoch=epoch))
    keeper.wait()
    kept = sorted(load(path).description.progress.epoch for path in tmp_path.iterdir())
    assert (kept, wrong.exists()) == ([1, 2], False)
