"""Mirror open durable jobs on the master's disk, where ``launch list`` finds them without calling AWS."""

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from launcher.atomic_file import write_atomically
from launcher.durable.bucket import JobBucket, open_bucket
from launcher.durable.record import DurableRecord
from launcher.errors import LaunchError
from launcher.job_records.durable_state import (
    DURABLE_DIR,
    DURABLE_RECORD_FILE,
    ENDED_FILE,
    UNREADABLE_FILE,
    durable_directory,
    is_open,
    is_unreadable,
    mark_ended,
)
from launcher.job_records.recorder import jobs_directory
from launcher.job_records.records import RECORD_FILE, JobRecord, JobState, read_record, write_record

FILES = "files"
"""Directory with the job's files, in the job's directory."""


def write(record: DurableRecord) -> None:
    """Store a job's record. Raises OSError."""
    directory = durable_directory(record.job.id)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(directory / DURABLE_RECORD_FILE, record.to_bytes())


def add_if_unknown(record: DurableRecord) -> bool:
    """Store the record of a job that is not known here; return False if it is known or stopped. Raises OSError."""
    directory = durable_directory(record.job.id)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with locked(record.job.id):
            if _must_not_add(record.job.id):
                return False
            write_atomically(directory / DURABLE_RECORD_FILE, record.to_bytes())
            (directory / UNREADABLE_FILE).unlink(missing_ok=True)
            return True
    except LaunchError:  # Stopped at this moment.
        return False


def mark_unreadable(job: JobRecord) -> None:
    """Let ``launch list`` show a job whose record cannot be read.

    Raises LaunchError if the job is known or stopped, and OSError.
    """
    with locked(job.id):
        if _must_not_add(job.id):
            raise LaunchError(f"job {job.id} is known or stopped")
        content = json.dumps({"job": json.loads(job.to_bytes())}).encode("ascii")
        write_atomically(durable_directory(job.id) / UNREADABLE_FILE, content)


def _must_not_add(job_id: str) -> bool:
    """Return True if the job's record is here, or the job has ended or was stopped (a stop removes its directory).

    Call it under the job's lock.
    """
    directory = durable_directory(job_id)
    # A directory alone proves nothing: the service may have been killed, or the disk may have been full, before a file
    # was written there.
    return not directory.exists() or (directory / DURABLE_RECORD_FILE).exists() or (directory / ENDED_FILE).exists()


def unreadable_jobs() -> list[str]:
    """Return the ids of the jobs whose records cannot be read."""
    listed = [path.parent.name for path in sorted((Path.home() / DURABLE_DIR).glob(f"*/{UNREADABLE_FILE}"))]
    return [job_id for job_id in listed if is_unreadable(job_id)]


@contextmanager
def locked(job_id: str) -> Iterator[None]:
    """Lock a job's directory, so that no process rewrites a record that another has removed. Raises LaunchError."""
    try:
        directory = os.open(durable_directory(job_id), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise LaunchError(f"job {job_id} is over or stopped") from error
    try:
        with suppress(OSError):  # The file system has no locks.
            # No deadline: the holder makes one call to S3, which has a deadline.
            fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def update(record: DurableRecord, bucket: JobBucket | None = None) -> None:
    """Store an open job's changed record here and in `bucket`, if given. Raises LaunchError if the job is over."""
    with locked(record.job.id):
        if not is_open(record.job.id):
            raise LaunchError(f"job {record.job.id} is over or stopped")
        if bucket is not None:
            bucket.put(record)
        write_atomically(durable_directory(record.job.id) / DURABLE_RECORD_FILE, record.to_bytes())


def close_job(job_id: str, bucket: JobBucket | None = None) -> None:
    """Close a job, so that no master restarts it.

    If the bucket is unreachable, the service deletes the record later.
    """
    if not durable_directory(job_id).exists():
        return
    with suppress(OSError):  # Even with a full disk, remove the job from the bucket.
        mark_ended(job_id)
    try:
        # An attempt that passed the check before the mark may still be writing the record.
        with locked(job_id):
            (bucket or open_bucket()).remove(job_id)
            remove(job_id)
    except LaunchError as error:
        text = "has ended; its record could not be deleted from the bucket and will be later"
        print(f"launch: job {job_id} {text}: {error}", file=sys.stderr)


def remove(job_id: str) -> None:
    """Remove everything that this machine stores about a job."""
    shutil.rmtree(durable_directory(job_id), ignore_errors=True)


def ended_jobs() -> list[str]:
    """Return the ids of jobs that have ended or been stopped but still have a record in the bucket."""
    return [path.parent.name for path in sorted((Path.home() / DURABLE_DIR).glob(f"*/{ENDED_FILE}"))]


def open_jobs() -> list[DurableRecord]:
    """Return the open jobs in the order of submission; skip unreadable ones."""
    return sorted(_records(), key=lambda record: (record.job.submitted_at, record.job.id))


def _records() -> Iterator[DurableRecord]:
    for path in (Path.home() / DURABLE_DIR).glob(f"*/{DURABLE_RECORD_FILE}"):
        if is_open(path.parent.name):
            with suppress(OSError, LaunchError):
                yield DurableRecord.from_bytes(path.read_bytes())


def is_older(job_id: str, seconds: float) -> bool:
    """Return True if the job's record was stored more than `seconds` ago."""
    return time.time() - (durable_directory(job_id) / DURABLE_RECORD_FILE).stat().st_mtime > seconds


def is_waiting(job_id: str) -> bool:
    """Return True if the job's launcher is waiting for nodes that other jobs use."""
    record = read_record(jobs_directory() / job_id)
    return record is not None and record.waiting is not None


def write_waiting_record(record: DurableRecord, jobs: Path) -> None:
    """Give the job a record among `jobs`, so that ``launch list`` shows it, unless it has one. Raises OSError."""
    directory = jobs / record.job.id
    if not (directory / RECORD_FILE).exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_record(directory, replace(record.job, state=JobState.WAITING))
