"""Count a job's consecutive short attempts, back off after each, and fail a job that has too many.

A job that hangs its nodes, or whose command no longer fits the cluster, would otherwise restart endlessly at the cost
of every node. The count is part of the stored record, so it survives the master.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from launcher.durable import mirror
from launcher.durable.bucket import open_bucket
from launcher.durable.record import DurableRecord
from launcher.errors import LaunchError
from launcher.job_records.record_upload import upload
from launcher.job_records.recorder import jobs_directory
from launcher.job_records.records import JobState, now, read_record, write_record

log = logging.getLogger("launch")

MIN_LONG_ATTEMPT_S = 600.0
"""Minimum duration of a long attempt, in seconds."""
MAX_SHORT_ATTEMPTS = 10
"""Number of consecutive short attempts after which a job has failed."""
FIRST_BACKOFF_S, MAX_BACKOFF_S = 10.0, 300.0
"""First and longest back-off after a short attempt, in seconds; each back-off is twice the previous one."""


class CrashLoopBackoff:
    """Counts and back-offs of the open jobs' consecutive short attempts; named after the state in Kubernetes."""

    def __init__(self, *, clock: Callable[[], float], save: Callable[[DurableRecord], None]) -> None:
        self._clock = clock
        self._save = save
        self._since: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._errors: dict[str, str] = {}

    def observe(self, record: DurableRecord, *, is_running: bool) -> None:
        """Reset the count of a job that has run for long; back off after a short attempt that has ended."""
        if is_running:
            since = self._since.setdefault(record.job.id, self._clock())
            if record.short_attempts and self._clock() - since >= MIN_LONG_ATTEMPT_S:
                self._save(replace(record, short_attempts=0))
        elif self._since.pop(record.job.id, None) is not None and record.short_attempts:
            self._back_off(record)

    def is_due(self, record: DurableRecord) -> bool:
        """Return True if the job's back-off is over."""
        return self._clock() >= self._not_before.get(record.job.id, 0.0)

    def count(self, record: DurableRecord) -> DurableRecord:
        """Count an attempt before it starts; return the changed record. Raises LaunchError if the job is over."""
        counted = replace(record, short_attempts=record.short_attempts + 1)
        mirror.update(counted)
        return counted

    def record_start(self, record: DurableRecord) -> None:
        """Start measuring the attempt's duration."""
        self._since[record.job.id] = self._clock()
        self._errors.pop(record.job.id, None)

    def record_failed_start(self, record: DurableRecord, error: str) -> float:
        """Back off after an attempt that did not start; return the back-off in seconds."""
        self._errors[record.job.id] = error
        return self._back_off(record)

    def end_if_exhausted(self, record: DurableRecord) -> bool:
        """Fail a job that has had too many short attempts; return False for any other."""
        if record.short_attempts < MAX_SHORT_ATTEMPTS:
            return False
        directory = jobs_directory() / record.job.id
        job = read_record(directory) or record.job
        last = self._errors.get(record.job.id) or job.reason or "it lost its nodes"
        reason = (
            f"{record.short_attempts} attempts in a row did not start or ran for less than {MIN_LONG_ATTEMPT_S:g} s, "
            f"the last: {last}"
        )
        log.error("job %s has failed: %s", record.job.id, reason)
        with suppress(OSError):  # End the job even if the disk is full.
            write_record(directory, replace(job, state=JobState.FAILED, reason=reason, exit_code=1, end=now()))
            upload(directory)
        mirror.close_job(record.job.id)
        return True

    def _back_off(self, record: DurableRecord) -> float:
        backoff_s = min(FIRST_BACKOFF_S * 2.0 ** max(record.short_attempts - 1, 0), MAX_BACKOFF_S)
        self._not_before[record.job.id] = self._clock() + backoff_s
        return backoff_s


def save(record: DurableRecord) -> None:
    """Store a changed record here and in the bucket; if the bucket does not answer, a later attempt stores it."""
    try:
        mirror.update(record)
        mirror.update(record, open_bucket())
    except (LaunchError, OSError) as error:
        log.warning("job %s: its count of short attempts is not stored: %s", record.job.id, error)
