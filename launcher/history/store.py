"""The records of this user's jobs on this machine, each with the state that it really is in."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launcher.errors import LaunchError, UsageError
from launcher.history.journal import jobs_directory
from launcher.history.lock import is_alive
from launcher.history.record_upload import upload
from launcher.history.records import JobRecord, State, read_record, write_record

NO_JOB = "there is no job yet"
MOST_NAMED = 3
"""Ids in one line."""
DIED = "its record has no end: its launcher was killed, its machine restarted, or its disk was full"


def directory_of(job_id: str) -> Path:
    """Where a job's record and logs are."""
    return jobs_directory() / job_id


def all_jobs() -> list[JobRecord]:
    """All jobs that are known, the oldest first."""
    try:
        names = sorted(entry.name for entry in jobs_directory().iterdir())
    except OSError:
        return []
    return [record for name in names if (record := current(directory_of(name))) is not None]


def current(directory: Path) -> JobRecord | None:
    """A job's record; one whose launcher died without a word is closed first, on disk too where that can be written."""
    record = read_record(directory)
    try:
        lives = record is None or is_alive(directory, record)
    except LaunchError:
        # Nobody can tell: it stays what it was when its launcher last wrote.
        lives = True
    # Read again: it may have ended in the meantime, and let go of its lock.
    record = record if lives else read_record(directory)
    if record is None or lives or record.state.is_terminal:
        return record
    closed = replace(record, state=State.FAILED, reason=DIED)
    # Whoever asks on a full disk, or in a home that is read-only, is to be told all the same.
    with suppress(OSError):
        write_record(directory, closed)
        upload(directory)
    return closed


def find(job_id: str | None) -> JobRecord:
    """The job of that id; left out: the one that runs, else the latest."""
    jobs = all_jobs()
    if not jobs:
        raise UsageError(NO_JOB)
    if job_id is None:
        going = [job for job in jobs if not job.state.is_terminal]
        return going[0] if len(going) == 1 else jobs[-1]
    return _named(job_id, jobs)


def find_going(job_id: str | None) -> JobRecord:
    """The job of that id; left out: the only one that runs."""
    jobs = all_jobs()
    if job_id is not None:
        return _named(job_id, jobs)
    going = [job for job in jobs if not job.state.is_terminal]
    if not going:
        raise UsageError("no job is running")
    if len(going) > 1:
        raise UsageError(f"{len(going)} jobs run, say which: {', '.join(job.id for job in going)}")
    return going[0]


def _named(start: str, jobs: list[JobRecord]) -> JobRecord:
    """The job whose id is, or alone begins with, `start`."""
    if not jobs:
        raise UsageError(NO_JOB)
    meant = [job for job in jobs if job.id.startswith(start)]
    # Ids are of one length: none is the start of another.
    if start and len(meant) == 1:
        return meant[0]
    what = "begins several" if meant else "begins none"
    latest = ", ".join(job.id for job in reversed((meant or jobs)[-MOST_NAMED:]))
    raise UsageError(f"JOB must be the id of one job or its start, such as {latest}; {start!r} {what}")
