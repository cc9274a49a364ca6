"""What the verbs say where nothing can be written."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import LaunchError
from launcher.history import commands, store
from launcher.history.records import State, read_record, write_record
from launcher.paths import JOB_LOG, JOBS_DIR, LOCK_FILE
from tests.launcher.job_records import RECORD

GOING = replace(RECORD, detached=True)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home directory on a small file system of its own, and in it a job whose launcher left no word of its end."""
    disk = tmp_path / "home"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True, timeout=10)
    monkeypatch.setenv("HOME", str(disk))
    directory = disk / JOBS_DIR / GOING.id
    directory.mkdir(parents=True)
    (directory / LOCK_FILE).touch()
    (directory / JOB_LOG).write_text("step 1\n")
    write_record(directory, GOING)
    yield disk
    subprocess.run(["umount", str(disk)], check=True, timeout=10)


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was to go to the bucket."""
    uploads: list[Path] = []
    monkeypatch.setattr(store, "upload", uploads.append)
    return uploads


def fill(disk: Path) -> None:
    free = os.statvfs(disk)
    (disk / "data").write_bytes(bytes(free.f_bavail * free.f_bsize))


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=10)


@pytest.mark.parametrize("hinder", [fill, make_read_only])
def test_verbs_that_read_need_no_room(
    disk: Path, uploads: list[Path], capfd: pytest.CaptureFixture[str], hinder: Callable[[Path], None]
) -> None:
    hinder(disk)
    assert commands.main(["list"]) == 0
    assert f"{GOING.id} FAILED".split() == capfd.readouterr().out.splitlines()[1].split()[:2]
    assert commands.main(["status"]) == 0
    assert f"reason     {store.DIED}" in capfd.readouterr().out.splitlines()
    assert commands.main(["logs"]) == 0
    assert capfd.readouterr().out == "step 1\n"
    # The bucket's copy is no better than the one here.
    assert (read_record(disk / JOBS_DIR / GOING.id), uploads) == (GOING, [])


def test_a_job_whose_end_found_no_room_is_closed_when_there_is_some_again(disk: Path, uploads: list[Path]) -> None:
    directory = disk / JOBS_DIR / GOING.id
    fill(disk)
    shown = store.current(directory)
    (disk / "data").unlink()
    assert store.current(directory) == shown == replace(GOING, state=State.FAILED, reason=store.DIED)
    assert (read_record(directory), uploads) == (shown, [directory])
    assert "its disk was full" in store.DIED


def test_fails_to_note_on_a_full_disk_that_a_launcher_was_killed(disk: Path) -> None:
    fill(disk)
    with pytest.raises(LaunchError) as caught:
        commands._kill(replace(GOING, pid=os.getpid()))
    assert str(caught.value) == f"job {GOING.id} is killed, but its record cannot say so: No space left on device"
