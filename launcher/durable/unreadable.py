"""Retry reading the records that could not be read, as when S3 or KMS denied it: the policy may be fixed by now."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from launcher.durable import mirror
from launcher.durable.bucket import JobBucket, UnreadableError
from launcher.durable.record import JOB_ID, DurableRecord
from launcher.errors import LaunchError
from launcher.job_records.durable_state import durable_directory, is_unreadable
from launcher.job_records.recorder import user_name
from launcher.job_records.records import JobRecord, JobState, now

log = logging.getLogger("launch")

FIRST_BACKOFF_S, MAX_BACKOFF_S = 10.0, 300.0
"""First and longest back-off between two attempts to read a record; each back-off is twice the previous one."""


class UnreadableJobs:
    """Jobs whose records cannot be read now."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._backoffs: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def add(self, job_id: str, reason: str) -> None:
        """List a job that is not known here, and read its record again later. Raises OSError."""
        if not JOB_ID.fullmatch(job_id):
            log.error("cannot resume: %s", reason)
        elif job_id not in self._due or not is_unreadable(job_id):
            durable_directory(job_id).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._back_off(job_id, reason)

    def keep_only(self, job_ids: set[str]) -> None:
        """Forget all other jobs: their records can be read by now, or are gone."""
        for job_id in mirror.unreadable_jobs():
            if job_id not in job_ids:
                mirror.remove(job_id)

    def read_again(self, open_bucket: Callable[[], JobBucket], copy_job: Callable[[DurableRecord], None]) -> None:
        """Resume the jobs whose back-off is over and whose records can be read now. Raises OSError on a full disk."""
        due = [job_id for job_id, at in self._due.items() if self._clock() >= at]
        if not due:
            return
        try:
            bucket = open_bucket()
            while due:
                self._read(due[0], bucket, copy_job)
                del due[0]
        except LaunchError as error:
            # S3 does not answer; each further call would take as long as its retries.
            for job_id in due:
                self._back_off(job_id, str(error))

    def _read(self, job_id: str, bucket: JobBucket, copy_job: Callable[[DurableRecord], None]) -> None:
        try:
            record = bucket.get(job_id)
            if record is None:
                mirror.remove(job_id)
            else:
                copy_job(record)
        except (UnreadableError, OSError) as error:
            self._back_off(job_id, str(error))
        else:
            self._forget(job_id)

    def _back_off(self, job_id: str, reason: str) -> None:
        backoff_s = self._backoffs[job_id] = min(2 * self._backoffs.get(job_id, FIRST_BACKOFF_S / 2), MAX_BACKOFF_S)
        self._due[job_id] = self._clock() + backoff_s
        try:
            mirror.mark_unreadable(_unreadable_record(job_id, reason, next_try=time.time() + backoff_s))
        except LaunchError:
            self._forget(job_id)
        else:
            log.error("cannot resume, next try in %g s: %s", backoff_s, reason)

    def _forget(self, job_id: str) -> None:
        del self._due[job_id], self._backoffs[job_id]


def _unreadable_record(job_id: str, reason: str, *, next_try: float) -> JobRecord:
    """Return what ``launch list`` shows: nothing but its id is known of the job."""
    submitted_at = now()
    with suppress(ValueError, OverflowError):  # The id does not start with a valid time.
        seconds = time.mktime(time.strptime(job_id[:15], "%Y%m%d-%H%M%S"))
        submitted_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    at = time.strftime("%H:%M:%S UTC", time.gmtime(next_try))
    return JobRecord(
        id=job_id,
        state=JobState.WAITING,
        command=(),
        hosts=(),
        framework="",
        cwd="",
        user=user_name(),
        pid=0,
        submitted_at=submitted_at,
        detached=True,
        durable=True,
        waiting=f"its record cannot be read, next try at {at}: {reason}",
    )
