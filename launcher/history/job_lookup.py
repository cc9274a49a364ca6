"""Look up this user's jobs on this machine, with their actual states."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launcher.durable_state import DIRECTORY, RECORD, is_open
from launcher.errors import LaunchError, UsageError
from launcher.history.journal import jobs_directory
from launcher.history.lock import is_alive
from launcher.history.record_upload import upload
from launcher.history.records import JobRecord, State, read_record, write_record

NO_JOB = "there is no job yet"
MAX_NAMED = 3
"""Maximum number of ids in one line."""
DIED = "its record has no end: its launcher was killed, its machine restarted, or its disk was full"


def directory_of(job_id: str) -> Path:
    """Return the directory of a job's record and logs."""
    return jobs_directory() / job_id


def all_jobs() -> list[JobRecord]:
    """Return all known jobs, the oldest first."""
    try:
        names = {entry.name for entry in jobs_directory().iterdir()}
    except OSError:
        names = set()
    submitted = _submitted()
    found = ((name, current(directory_of(name))) for name in sorted(names | submitted.keys()))
    # A durable job has no record of its own until its unit has written it.
    return [job for name, record in found if (job := record or submitted.get(name)) is not None]


def current(directory: Path) -> JobRecord | None:
    """Return a job's record with its actual state; if its launcher died, close the record first."""
    record = read_record(directory)
    try:
        lives = record is None or is_alive(directory, record)
    except LaunchError:
        # The file system cannot tell: keep the last state that the launcher recorded.
        lives = True
    # Read again: the job may have ended in the meantime and released its lock.
    record = record if lives else read_record(directory)
    if record is not None and not lives and record.durable and not record.state.is_terminal and is_open(record.id):
        return replace(record, state=State.WAITING, place=None, waiting=None)
    if record is None or lives or record.state.is_terminal:
        return record
    closed = replace(record, state=State.FAILED, reason=DIED, place=None, waiting=None)
    # Report the state even if it cannot be saved, as on a full or read-only disk.
    with suppress(OSError):
        write_record(directory, closed)
        upload(directory)
    return closed


def _submitted() -> dict[str, JobRecord]:
    """Return the open durable jobs as they were submitted, by id; skip unreadable ones."""
    found = {}
    for path in (Path.home() / DIRECTORY).glob(f"*/{RECORD}"):
        if is_open(path.parent.name):
            with suppress(OSError, ValueError, KeyError, TypeError):
                found[path.parent.name] = JobRecord.from_bytes(
                    json.dumps(json.loads(path.read_bytes())["job"]).encode()
                )
    return found


def find(job_id: str | None) -> JobRecord:
    """Return the job with this id; without an id the running job, else the latest."""
    jobs = all_jobs()
    if not jobs:
        raise UsageError(NO_JOB)
    if job_id is None:
        running = [job for job in jobs if not job.state.is_terminal]
        return running[0] if len(running) == 1 else jobs[-1]
    return _with_prefix(job_id, jobs)


def find_running(job_id: str | None) -> JobRecord:
    """Return the job with this id; without an id, the only running job."""
    jobs = all_jobs()
    if job_id is not None:
        return _with_prefix(job_id, jobs)
    running = [job for job in jobs if not job.state.is_terminal]
    if not running:
        raise UsageError("no job is running")
    if len(running) > 1:
        raise UsageError(f"{len(running)} jobs are running, name one of them: {', '.join(job.id for job in running)}")
    return running[0]


def _with_prefix(prefix: str, jobs: list[JobRecord]) -> JobRecord:
    """Return the only job whose id begins with `prefix`."""
    if not jobs:
        raise UsageError(NO_JOB)
    matches = [job for job in jobs if job.id.startswith(prefix)]
    # All ids have the same length, so none is the prefix of another.
    if prefix and len(matches) == 1:
        return matches[0]
    latest = ", ".join(job.id for job in reversed((matches or jobs)[-MAX_NAMED:]))
    problem = "matches several jobs" if matches else "matches no job, the latest are"
    raise UsageError(f"{prefix!r} {problem}: {latest}")
