"""Test that stopping a durable job is final, whatever the job is doing."""

import fcntl
import os
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.detached.unit import LogSink
from launcher.durable import mirror
from launcher.durable.attempt import DurableAttempt, start_attempt
from launcher.durable.bucket import JobBucket
from launcher.durable.record import DurableRecord
from launcher.errors import LaunchError
from launcher.job_records.durable_state import durable_directory
from launcher.job_records.job_lookup import all_jobs
from launcher.job_records.recorder import JobRecorder, jobs_directory
from launcher.job_records.records import JobState, write_record
from launcher.paths import LOCK_FILE
from launcher.recorded_run import run_recorded_job
from launcher.subcommands import commands, stop
from launcher.transport.protocol import FrameType
from tests.launcher.durable.durable_jobs import Submit, durable_job


def test_stop_while_an_attempt_copies_its_files_is_final(
    home: Path, bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "code").mkdir()
    record = submit("--sync-dst-dir", "code", "true", cwd=home / "code")
    monkeypatch.setattr("launcher.durable.attempt.detach", lambda *words, **values: pytest.fail("starts"))
    monkeypatch.setattr(bucket, "fetch_files", lambda *words: mirror.close_job(record.job.id, bucket))
    with pytest.raises(LaunchError, match="is over or stopped"):
        start_attempt(record.job.id, bucket=bucket)
    assert bucket.read_records() == ([], [])
    assert not durable_directory(record.job.id).exists()


def test_stop_during_an_upload_deletes_the_upload(
    home: Path, bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, put = submit("true"), bucket.put
    stop = threading.Thread(target=mirror.close_job, args=(record.job.id, bucket))

    def put_during_the_stop(changed: DurableRecord) -> None:
        stop.start()
        stop.join(0.1)  # long enough for a stop that does not wait for this attempt
        put(changed)

    monkeypatch.setattr(bucket, "put", put_during_the_stop)
    mirror.update(record.next_attempt(), bucket)
    stop.join()
    assert bucket.read_records() == ([], [])
    assert not durable_directory(record.job.id).exists()


def test_waiting_job_is_listed_and_stopped(
    home: Path, bucket: JobBucket, submit: Submit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    record = submit("true")
    mirror.write_waiting_record(record, jobs_directory())
    assert commands.main(["list"]) == 0
    assert f"{record.job.id} WAITING for nodes " in capsys.readouterr().out
    assert commands.main(["stop", record.job.id], end_durable=lambda job_id: mirror.close_job(job_id, bucket)) == 0
    assert capsys.readouterr().out == f"{record.job.id} CANCELLED\n"
    assert (bucket.read_records(), [job.state for job in all_jobs()]) == (([], []), [JobState.CANCELLED])


def test_stop_before_the_first_record_stops_the_attempt(
    home: Path, bucket: JobBucket, submit: Submit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    record = submit("true")
    attempt = DurableAttempt(record.job.id, 1)
    assert not attempt.is_stopped()
    assert commands.main(["stop", record.job.id], end_durable=lambda job_id: mirror.close_job(job_id, bucket)) == 0
    assert capsys.readouterr().out == f"{record.job.id} CANCELLED\n"
    assert attempt.is_stopped()
    assert [job.state for job in all_jobs()] == [JobState.CANCELLED]


def test_stop_finds_the_launcher_that_has_just_begun(
    home: Path, bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits for nodes when the stop checks it, and its launcher starts before the stop's mark."""
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    monkeypatch.setattr(stop, "RECORD_TIMEOUT_S", 60.0)
    record = submit("true")
    mirror.write_waiting_record(record, jobs_directory())
    directory = jobs_directory() / record.job.id
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    with subprocess.Popen(["sleep", "1000"]) as launcher:

        def run() -> None:
            begun = replace(record.job, state=JobState.PENDING, attempt=2, pid=launcher.pid)
            write_record(directory, begun)
            launcher.wait(60)
            write_record(directory, replace(begun, state=JobState.CANCELLED))
            os.close(lock)

        def end_durable(job_id: str) -> None:
            fcntl.flock(lock, fcntl.LOCK_EX)
            mirror.close_job(job_id, bucket)
            threading.Timer(0.1, run).start()

        try:
            assert commands.main(["stop", record.job.id], end_durable=end_durable) == 0
            assert launcher.returncode == -signal.SIGTERM
        finally:
            launcher.kill()


def test_stop_before_the_first_record_ends_the_job(
    home: Path, bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop sees no launcher yet, and the launcher has already checked whether the job is open."""
    monkeypatch.delenv("DEEPLEARNING_BUCKET", raising=False)
    monkeypatch.setattr("launcher.recorded_run.run_until_signal", lambda *words, **values: pytest.fail("runs"))
    record = submit("true")
    job, _ = durable_job("true", home=home)
    attempt = DurableAttempt(record.job.id, 1)
    assert attempt.prepare(job) is job
    assert commands.main(["stop", record.job.id], end_durable=lambda job_id: mirror.close_job(job_id, bucket)) == 0
    recorder = JobRecorder(job, job_id=record.job.id, cwd="/", stays_open=attempt.stays_open)
    log = LogSink(jobs_directory() / record.job.id)
    streams = {FrameType.STDOUT: log, FrameType.STDERR: log}
    assert run_recorded_job(job, recorder=recorder, cwd="/", streams=streams, is_stopped=attempt.is_stopped) == 143
    assert recorder.state is JobState.CANCELLED
