"""Implement ``launch stop``: end a job on all its nodes, and record its end if its launcher cannot."""

import argparse
import signal
import sys
import time
from dataclasses import replace

from launcher.errors import LaunchError, UsageError
from launcher.job_records import job_lookup
from launcher.job_records.lock import is_held, launcher_is_alive, signal_launcher
from launcher.job_records.record_upload import UPLOADS_TIMEOUT_S, upload
from launcher.job_records.records import JobRecord, JobState, now, read_record, write_record
from launcher.transport.protocol import AFTER_GRACE_S

KILL_TIMEOUT_S = 5.0
RECORD_TIMEOUT_S = 5.0
"""Seconds within which a launcher that holds its job's lock has written its record."""
POLL_S = 0.05


def stop(options: argparse.Namespace) -> int:
    """End a job on all its nodes: send its ranks TERM, and KILL after the grace period."""
    job = job_lookup.find_running(options.job)
    directory = job_lookup.job_directory(job.id)
    if job.state.is_terminal:
        raise UsageError(f"job {job.id} has already ended: {job.state.value}")
    if job.durable:
        options.end_durable(job.id)
    if job.is_suspended:
        # A launcher that has started since then checks for the mark after it has written its record.
        begun = _wait_for_record(job)
        if not launcher_is_alive(directory, job):
            return _cancel_suspended(job)
        job = begun or job
    if job.pid:
        signal_launcher(directory, job, signal.SIGTERM)
    # Allow more time than a launcher takes to end its job, even with an unresponsive node.
    ended = _wait_for_end(job, 2 * (job.grace_s + AFTER_GRACE_S))
    if not ended and _latest_record(job).state.is_terminal:
        # The launcher is uploading the record.
        ended = _wait_for_end(job, UPLOADS_TIMEOUT_S)
    if not ended:
        _kill(job)
    last = job_lookup.refresh_record(directory)
    print(f"{job.id} {last.state.value if last else 'gone'}")
    return 0


def _wait_for_record(job: JobRecord) -> JobRecord | None:
    """Wait for the record that a launcher may be about to write; None if none appears in time."""
    directory, until = job_lookup.job_directory(job.id), time.monotonic() + RECORD_TIMEOUT_S
    while is_held(directory) and time.monotonic() < until:
        record = read_record(directory)
        if record is not None and (record.attempt, record.pid) != (job.attempt, job.pid):
            return record
        time.sleep(POLL_S)
    return None


def _cancel_suspended(job: JobRecord) -> int:
    """Record the end of a durable job that no launcher is running."""
    directory = job_lookup.job_directory(job.id)
    ended = replace(
        job, state=JobState.CANCELLED, reason="stopped while it waited", waiting=None, queue_position=None, end=now()
    )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_record(directory, ended)
    except OSError as error:
        raise LaunchError(f"job {job.id} is stopped, but its record cannot be written: {error.strerror}") from error
    if reason := upload(directory):
        print(f"launch: the job's record is not in the bucket: {reason}", file=sys.stderr)
    print(f"{job.id} {JobState.CANCELLED.value}")
    return 0


def _kill(job: JobRecord) -> None:
    """Kill a launcher that does not end; the nodes then end their processes."""
    directory = job_lookup.job_directory(job.id)
    signal_launcher(directory, job, signal.SIGKILL)
    if not _wait_for_end(job, KILL_TIMEOUT_S):
        raise LaunchError(f"job {job.id}: its launcher, process {job.pid}, cannot be killed")
    latest = _latest_record(job)
    if latest.state.is_terminal:
        return
    try:
        write_record(directory, replace(latest, state=JobState.CANCELLED, reason="killed by launch stop", end=now()))
    except OSError as error:
        raise LaunchError(f"job {job.id} is killed, but its record cannot be written: {error.strerror}") from error


def _latest_record(job: JobRecord) -> JobRecord:
    """Return the launcher's latest version of the record."""
    return read_record(job_lookup.job_directory(job.id)) or job


def _wait_for_end(job: JobRecord, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while is_held(job_lookup.job_directory(job.id)):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_S)
    return True
