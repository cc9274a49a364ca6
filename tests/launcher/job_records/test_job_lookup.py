"""Test the subcommands on a full disk."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import LaunchError, UsageError
from launcher.job_records import job_lookup
from launcher.job_records.records import JobState, read_record, write_record
from launcher.paths import JOB_LOG, JOBS_DIR, LOCK_FILE
from launcher.subcommands import commands, stop
from tests.launcher.example_job import RECORD

GOING = replace(RECORD, detached=True)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a home directory on a small file system, with a job whose launcher recorded no end."""
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
    """Collect the uploads to the bucket."""
    uploads: list[Path] = []
    monkeypatch.setattr(job_lookup, "upload", uploads.append)
    return uploads


@pytest.fixture
def job_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Make jobs, some with the same name; return their ids by name and state."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(job_lookup, "launcher_is_alive", lambda directory, record: not record.state.is_terminal)
    ids = {}
    for number, (name, state) in enumerate(
        [
            ("base-1", JobState.FAILED),
            ("base-1", JobState.RUNNING),
            ("base-2", JobState.SUCCEEDED),
            ("base-2", JobState.FAILED),
            ("twins", JobState.SUCCEEDED),
            ("twin", JobState.RUNNING),
            ("twin", JobState.WAITING),
            (None, JobState.SUCCEEDED),
        ]
    ):
        job = replace(RECORD, id=f"20261122-00000{number}-a{number}bbbb", name=name, state=state)
        directory = tmp_path / JOBS_DIR / job.id
        directory.mkdir(parents=True)
        write_record(directory, job)
        ids[f"{name} {state.value}"] = job.id
    return ids


@pytest.mark.parametrize(
    ("word", "found", "running"),
    [
        ("base-1", "base-1 RUNNING", "base-1 RUNNING"),
        ("base-2", "base-2 FAILED", "base-2 FAILED"),
        ("twin", "twin WAITING", "2 jobs named twin are open; name one of them: {twin RUNNING}, {twin WAITING}"),
        ("20261122-000001", "base-1 RUNNING", "base-1 RUNNING"),
        ("20261122-000007", "None SUCCEEDED", "None SUCCEEDED"),
        ("7bbbb", "None SUCCEEDED", "None SUCCEEDED"),
        ("a1bbbb", "base-1 RUNNING", "base-1 RUNNING"),
    ],
)
def test_word_matches_an_id_a_name_a_prefix_or_the_end_of_an_id(
    job_ids: dict[str, str], word: str, found: str, running: str
) -> None:
    assert job_lookup.find(word).id == job_ids[found]
    if running in job_ids:
        assert job_lookup.find_running(word).id == job_ids[running]
    else:
        with pytest.raises(UsageError) as caught:
            job_lookup.find_running(word)
        assert str(caught.value) == running.format(**job_ids)


LATEST = "{None SUCCEEDED}, {twin WAITING} (twin), {twin RUNNING} (twin)"


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        (
            "base",
            "matches several jobs: {base-2 FAILED} (base-2), {base-2 SUCCEEDED} (base-2), {base-1 RUNNING} (base-1)",
        ),
        ("20261122-00000", f"matches several jobs: {LATEST}"),
        ("bbbb", f"matches several jobs: {LATEST}"),
        ("bbb", f"matches no job; the latest are: {LATEST}"),
        ("tower", f"matches no job; the latest are: {LATEST}"),
        ("", f"matches no job; the latest are: {LATEST}"),
    ],
)
def test_word_for_no_job_or_several_is_a_usage_error(job_ids: dict[str, str], word: str, problem: str) -> None:
    for find in (job_lookup.find, job_lookup.find_running):
        with pytest.raises(UsageError) as caught:
            find(word)
        assert str(caught.value) == f"{word!r} {problem.format(**job_ids)}"


def fill(disk: Path) -> None:
    free = os.statvfs(disk)
    (disk / "data").write_bytes(bytes(free.f_bavail * free.f_bsize))


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=10)


@pytest.mark.parametrize("hinder", [fill, make_read_only])
def test_list_and_status_work_on_a_full_disk(
    disk: Path, uploads: list[Path], capfd: pytest.CaptureFixture[str], hinder: Callable[[Path], None]
) -> None:
    hinder(disk)
    assert commands.main(["list"]) == 0
    assert f"{GOING.id} FAILED".split() == capfd.readouterr().out.splitlines()[1].split()[:2]
    assert commands.main(["status"]) == 0
    assert f"reason     {job_lookup.DIED}" in capfd.readouterr().out.splitlines()
    assert commands.main(["logs"]) == 0
    assert capfd.readouterr().out == "step 1\n"
    # The copy in the bucket is no better than the local one.
    assert (read_record(disk / JOBS_DIR / GOING.id), uploads) == (GOING, [])


def test_unfinished_job_is_closed_once_the_disk_has_space(disk: Path, uploads: list[Path]) -> None:
    directory = disk / JOBS_DIR / GOING.id
    fill(disk)
    shown = job_lookup.refresh_record(directory)
    (disk / "data").unlink()
    assert (
        job_lookup.refresh_record(directory) == shown == replace(GOING, state=JobState.FAILED, reason=job_lookup.DIED)
    )
    assert (read_record(directory), uploads) == (shown, [directory])
    assert "its disk was full" in job_lookup.DIED


def test_kill_that_a_full_disk_cannot_record_is_reported(disk: Path) -> None:
    fill(disk)
    with pytest.raises(LaunchError) as caught:
        stop._kill(replace(GOING, pid=os.getpid()))
    assert str(caught.value) == f"job {GOING.id} is killed, but its record cannot be written: No space left on device"
