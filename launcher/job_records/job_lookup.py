"""Look up this user's jobs on this machine, with their actual states."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from launcher.errors import LaunchError, UsageError
from launcher.job_records.durable_state import DURABLE_DIR, DURABLE_RECORD_FILE, UNREADABLE_FILE, is_open, is_unreadable
from launcher.job_records.lock import launcher_is_alive
from launcher.job_records.record_upload import upload
from launcher.job_records.recorder import jobs_directory
from launcher.job_records.records import JobRecord, JobState, read_record, write_record

NO_JOB = "there is no job yet"
MAX_NAMED = 3
"""Maximum number of ids in one line."""
MIN_END = 4
"""Minimum number of characters by which the end of an id names a job, as in git: fewer may be a typing error."""
DIED = "its record has no end: its launcher was killed, its machine restarted, or its disk was full"


def job_directory(job_id: str) -> Path:
    """Return the directory of a job's record and logs."""
    return jobs_directory() / job_id


def all_jobs() -> list[JobRecord]:
    """Return all known jobs, the oldest first."""
    try:
        names = {entry.name for entry in jobs_directory().iterdir()}
    except OSError:
        names = set()
    submitted = _submitted()
    records = ((name, refresh_record(job_directory(name))) for name in sorted(names | submitted.keys()))
    # A durable job has no record of its own until its unit has written it.
    return [job for name, record in records if (job := record or submitted.get(name)) is not None]


def refresh_record(directory: Path) -> JobRecord | None:
    """Return a job's record with its actual state; if its launcher died, close the record first."""
    record = read_record(directory)
    try:
        lives = record is None or launcher_is_alive(directory, record)
    except LaunchError:
        # The file system cannot tell: keep the last state that the launcher recorded.
        lives = True
    # Read again: the job may have ended in the meantime and released its lock.
    record = record if lives else read_record(directory)
    if record is not None and not lives and record.durable and not record.state.is_terminal and _is_kept(record.id):
        return replace(record, state=JobState.WAITING, queue_position=None, waiting=None)
    if record is None or lives or record.state.is_terminal:
        return record
    closed = replace(record, state=JobState.FAILED, reason=DIED, queue_position=None, waiting=None)
    # Report the state even if it cannot be saved, as on a full or read-only disk.
    with suppress(OSError):
        write_record(directory, closed)
        upload(directory)
    return closed


def _is_kept(job_id: str) -> bool:
    """Return True if the service starts the durable job again, once it can read its record."""
    return is_open(job_id) or is_unreadable(job_id)


def _submitted() -> dict[str, JobRecord]:
    """Return the open durable jobs as they were submitted, by id; skip unreadable ones."""
    jobs = {}
    stored = Path.home() / DURABLE_DIR
    for path in (*stored.glob(f"*/{UNREADABLE_FILE}"), *stored.glob(f"*/{DURABLE_RECORD_FILE}")):
        if _is_kept(path.parent.name):
            with suppress(OSError, ValueError, KeyError, TypeError):
                jobs[path.parent.name] = JobRecord.from_bytes(json.dumps(json.loads(path.read_bytes())["job"]).encode())
    return jobs


def find(word: str | None) -> JobRecord:
    """Return the job that `word` means: an id, a name, the beginning of either, or the end of an id.

    Of several jobs with this name, or without a word, return the only running job, else the latest job.
    """
    jobs = all_jobs()
    if not jobs:
        raise UsageError(NO_JOB)
    jobs = jobs if word is None else _matching(word, jobs)
    running = [job for job in jobs if not job.state.is_terminal]
    return running[0] if len(running) == 1 else jobs[-1]


def find_running(word: str | None) -> JobRecord:
    """Return the job that `word` means; of several jobs with this name, or without a word, the only running job."""
    jobs = all_jobs()
    jobs = jobs if word is None else _matching(word, jobs)
    running = [job for job in jobs if not job.state.is_terminal]
    if len(running) == 1:
        return running[0]
    if running:
        named = "" if word is None else f" named {running[0].name}"
        ids = ", ".join(job.id for job in running)
        raise UsageError(f"{len(running)} jobs{named} are open; name one of them: {ids}")
    if word is None:
        raise UsageError("no job is running")
    return jobs[-1]


def _matching(word: str, jobs: list[JobRecord]) -> list[JobRecord]:
    """Return the job whose id starts or ends with `word`, or all jobs whose name equals or uniquely starts with it."""
    if not jobs:
        raise UsageError(NO_JOB)
    if named := [job for job in jobs if job.name == word]:
        return named
    # Ids start with a digit, names with a letter. All ids have the same length, so none is the prefix of another.
    is_id = word[:1].isdigit()
    matches = [job for job in jobs if word and ((job.id if is_id else job.name) or "").startswith(word)]
    if not matches and len(word) >= MIN_END:
        is_id, matches = True, [job for job in jobs if job.id.endswith(word)]
    if len({job.id if is_id else job.name for job in matches}) == 1:
        return matches
    latest = ", ".join(map(_label, reversed((matches or jobs)[-MAX_NAMED:])))
    problem = "matches several jobs" if matches else "matches no job; the latest are"
    raise UsageError(f"{word!r} {problem}: {latest}")


def _label(job: JobRecord) -> str:
    return f"{job.id} ({job.name})" if job.name else job.id
