"""Test the detection of a live launcher in difficult cases."""

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import LaunchError
from launcher.job_directories import STALE_S, lock_is_fresh, remove_old_jobs
from launcher.job_records import job_lookup
from launcher.job_records.lock import boot_id
from launcher.job_records.recorder import JobRecorder
from launcher.job_records.records import JobRecord, JobState, read_record, write_record
from launcher.paths import JOBS_DIR, LOCK_FILE
from launcher.subcommands import commands, stop
from tests.launcher.example_job import JOB, RECORD


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the directory of a job that is running according to its record."""
    monkeypatch.setenv("HOME", str(tmp_path))
    directory = tmp_path / JOBS_DIR / RECORD.id
    directory.mkdir(parents=True)
    (directory / LOCK_FILE).touch()
    write_record(directory, replace(RECORD, pid=os.getpid()))
    return directory


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse all locks, as some network file systems do."""

    def refuse(_fd: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_locks")
def test_jobs_are_shown_on_a_file_system_without_locks(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["list"]) == 0
    assert f"{RECORD.id} RUNNING".split() == capfd.readouterr().out.splitlines()[1].split()[:2]
    assert read_record(directory) == replace(RECORD, pid=os.getpid())


@pytest.mark.usefixtures("no_locks")
def test_stop_is_refused_on_a_file_system_without_locks(directory: Path) -> None:
    with pytest.raises(LaunchError) as caught:
        commands.main(["stop"])
    assert str(caught.value) == f"{directory / LOCK_FILE}: cannot be locked: No locks available"


@pytest.mark.usefixtures("no_locks")
def test_note_names_the_record_that_cannot_be_written(directory: Path) -> None:
    recorder = JobRecorder(JOB, job_id=RECORD.id, cwd="/")
    recorder.begin()
    assert recorder.write_error == f"{directory}: No locks available"


def test_stop_of_another_machines_job_sends_no_signal_here(directory: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as bystander, (directory / LOCK_FILE).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_record(directory, replace(RECORD, pid=bystander.pid, machine="elsewhere", boot_id="x"))
        try:
            with pytest.raises(LaunchError) as caught:
                commands.main(["stop"])
            assert bystander.poll() is None
        finally:
            bystander.kill()
    assert str(caught.value) == f"job {RECORD.id} runs on elsewhere: stop it there"


ELSEWHERE = replace(RECORD, machine="elsewhere", boot_id="x")


def test_remote_job_runs_while_its_lock_is_touched(directory: Path) -> None:
    write_record(directory, ELSEWHERE)
    assert job_lookup.refresh_record(directory) == ELSEWHERE
    with pytest.raises(LaunchError, match="runs on elsewhere: stop it there"):
        commands.main(["stop"])
    long_ago = time.time() - 2 * STALE_S
    os.utime(directory / LOCK_FILE, (long_ago, long_ago))
    closed = job_lookup.refresh_record(directory)
    assert closed is not None
    assert (closed.state, closed.reason) == (JobState.FAILED, job_lookup.DIED)


def test_running_job_of_another_machine_is_not_removed(directory: Path) -> None:
    jobs = directory.parent
    for job in ("1", "2", "3"):
        (jobs / job).mkdir()
    (jobs / "1" / LOCK_FILE).touch()
    remove_old_jobs(str(jobs), keep=1)
    # The newest one stays; of the others, the live one and the fixture's, which is recent too.
    assert {entry.name for entry in jobs.iterdir()} == {"1", "3", directory.name}


def test_launcher_touches_its_lock_for_other_machines(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.job_records.recorder.TOUCH_INTERVAL_S", 0.0)
    os.utime(directory / LOCK_FILE, (0.0, 0.0))
    recorder = JobRecorder(JOB, job_id=RECORD.id, cwd="/")

    async def live() -> None:
        beating = asyncio.ensure_future(recorder.touch_lock_forever())
        while not lock_is_fresh(directory):
            await asyncio.sleep(0)
        beating.cancel()

    asyncio.run(asyncio.wait_for(live(), 60))


def test_finished_jobs_lock_is_stale_at_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    recorder = JobRecorder(JOB, job_id=RECORD.id, cwd="/")
    assert lock_is_fresh(directory)
    recorder.on_end(None)
    recorder.upload()
    assert not lock_is_fresh(directory)


def test_record_has_the_machine_that_its_launcher_runs_on(directory: Path) -> None:
    recorder = JobRecorder(JOB, job_id=RECORD.id, cwd="/")
    recorder.on_end(None)
    kept = read_record(directory)
    assert kept is not None
    assert (kept.machine, kept.boot_id) == (os.uname().nodename, boot_id())
    assert kept.boot_id


@pytest.mark.parametrize("uploads_s", [60.0, 0.0], ids=["upload that ends", "upload that hangs"])
def test_stop_leaves_the_record_of_a_job_that_has_ended(
    directory: Path, monkeypatch: pytest.MonkeyPatch, uploads_s: float
) -> None:
    monkeypatch.setattr(stop, "AFTER_GRACE_S", 0.0)
    monkeypatch.setattr(stop, "UPLOADS_TIMEOUT_S", uploads_s)
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    # Holds the lock like a launcher that has ended its job and is still uploading.
    uploading = "import pathlib, signal, sys; from launcher.job_records.lock import acquire_lock; "
    uploading += "acquire_lock(pathlib.Path(sys.argv[1])); print(flush=True); signal.sigwait({signal.SIGUSR1})"
    blocked = {signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    launcher = subprocess.Popen([sys.executable, "-c", uploading, str(directory)], stdout=subprocess.PIPE)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
    with launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        going = replace(RECORD, pid=launcher.pid, grace_s=0.0)
        ended = replace(going, state=JobState.SUCCEEDED, end="2026-11-22T00:00:01Z", exit_code=0)
        write_record(directory, going)
        wait = stop._wait_for_end

        def end_meanwhile(job: JobRecord, seconds: float) -> bool:
            write_record(directory, ended)
            if seconds == uploads_s > 0:
                launcher.send_signal(signal.SIGUSR1)
            return wait(job, seconds)

        monkeypatch.setattr(stop, "_wait_for_end", end_meanwhile)
        assert commands.main(["stop"]) == 0
        assert launcher.wait(60) == (0 if uploads_s else -signal.SIGKILL)
    assert read_record(directory) == ended
