"""Keep the record of a job up to date, on the launcher's side.

An unwritable record must not end a job; a note reports it once.
"""

import asyncio
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bootstrap.contract import BUCKET_VARIABLE
from launcher.job.failure import Failure, FailureCause
from launcher.job.gpu_check import allocated_gpus
from launcher.job_directories import KEPT_JOBS, remove_old_jobs
from launcher.job_records.checkpoints import CheckpointLocation, checkpoint_location
from launcher.job_records.git import RevisionQuery
from launcher.job_records.lock import (
    TOUCH_INTERVAL_S,
    acquire_lock,
    boot_id,
    mark_lock_stale,
    touch_lock,
    write_grace_period,
)
from launcher.job_records.record_upload import RecordUpload, start_upload, upload
from launcher.job_records.records import JobRecord, JobState, Revision, now, without_values, write_record
from launcher.paths import JOBS_DIR
from launcher.spec import JobSpec

UPLOAD_AFTER_S = 10.0
"""Seconds after which a running job's record is uploaded; a shorter job's is uploaded at its end."""


def jobs_directory() -> Path:
    """Return the directory of this user's job records."""
    return Path.home() / JOBS_DIR


class JobRecorder:
    """Recorder that writes the record of one job whenever the job changes."""

    def __init__(
        self,
        job: JobSpec,
        *,
        job_id: str,
        cwd: str,
        detached: bool = False,
        on_start: Callable[[], None] = lambda: None,
        systemd_is_stopping: Callable[[], bool] = lambda: False,
        attempt: int = 1,
        submitted_at: str | None = None,
        started_by: str | None = None,
        stays_open: Callable[[Failure, JobState], bool] = lambda failure, state: False,
    ) -> None:
        location = checkpoint_location(job, cwd=cwd, bucket=os.environ.get(BUCKET_VARIABLE))
        self._record = JobRecord(
            id=job_id,
            state=JobState.PENDING,
            command=without_values(job.command),
            hosts=tuple(map(str, job.hosts)),
            framework=job.framework,
            grace_s=job.grace_s,
            cwd=cwd,
            user=user_name(),
            name=job.name,
            started_by=started_by,
            pid=os.getpid(),
            machine=os.uname().nodename,
            boot_id=boot_id(),
            submitted_at=submitted_at or now(),
            detached=detached,
            gpus=allocated_gpus(job),
            waits=job.queue_policy is not None,
            local_checkpoints=location is CheckpointLocation.LOCAL,
            unknown_checkpoints=job.durable and location is CheckpointLocation.UNKNOWN,
            durable=job.durable,
            attempt=attempt,
        )
        self._on_start: Callable[[], None] | None = on_start
        self._systemd_is_stopping = systemd_is_stopping
        self._stays_open = stays_open
        self._directory = jobs_directory() / job_id
        self._revision_query: RevisionQuery | None = None
        self._upload: RecordUpload | None = None
        self.write_error: str | None = None
        """Reason why no record is kept; None while one is."""

    @property
    def state(self) -> JobState:
        """Return the job's state."""
        return self._record.state

    @property
    def job_id(self) -> str:
        """Return the id of the job that the record describes."""
        return self._record.id

    def begin(self) -> None:
        """Record the job as PENDING."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            acquire_lock(self._directory)
        except OSError as error:
            self.write_error = self._describe(error)
            return
        self._revision_query = RevisionQuery(self._record.cwd)
        self._write()
        remove_old_jobs(str(self._directory.parent), keep=KEPT_JOBS)

    async def touch_lock_forever(self) -> None:
        """Touch the lock for machines that share the home directory, until cancelled."""
        while True:
            await asyncio.sleep(TOUCH_INTERVAL_S)
            with suppress(OSError):
                touch_lock(self._directory)

    def on_waiting(self, text: str, *, queue_position: int) -> None:
        """Record that the job waits, at this position in the queue."""
        self._change(state=JobState.WAITING, queue_position=queue_position, waiting=text)
        self._report_start()

    def on_allocated(self, job: JobSpec) -> None:
        """Record that the job owns the nodes of `job`, before it connects to them."""
        self._change(starting=True, hosts=tuple(map(str, job.hosts)), gpus=allocated_gpus(job))

    def on_waiting_again(self) -> None:
        """Record that the job waits in the queue again."""
        self._change(starting=False)

    def _report_start(self) -> None:
        """Report, once, that the job runs or waits."""
        on_start, self._on_start = self._on_start, None
        if on_start is not None:
            on_start()

    def on_running(
        self, logs: Mapping[str, Sequence[str]], *, restart_count: int, gpus: Mapping[str, Sequence[str] | None]
    ) -> None:
        """Record the start of the processes after `restart_count` restarts, with each host's logs and GPUs."""
        is_restart = self._record.state is JobState.RUNNING
        self._change(
            state=JobState.RUNNING,
            hosts=tuple(logs),
            logs={host: list(names) for host, names in logs.items()},
            gpus={host: None if taken is None else list(taken) for host, taken in gpus.items()},
            queue_position=None,
            waiting=None,
            starting=False,
            restarts=restart_count,
        )
        self._write_grace_period(self._record.grace_s)
        if not is_restart:
            self._report_start()
            asyncio.get_running_loop().call_later(UPLOAD_AFTER_S, self._begin_upload)

    def on_restart(self) -> None:
        """Note that the job has no processes until it has found nodes for a restart."""
        self._write_grace_period(0)

    def _write_grace_period(self, grace_s: float) -> None:
        with suppress(OSError):
            write_grace_period(self._directory, grace_s)

    def on_synced(self, digest: str) -> None:
        """Record the digest of the synced files."""
        self._change(revision=replace(self._record.revision, digest=digest))

    def on_end(self, failure: Failure | None) -> None:
        """Record the end of the job."""
        if failure is not None and self._stays_open(failure, self._record.state):
            self._change(
                state=JobState.WAITING,
                reason=failure.reason,
                queue_position=None,
                waiting=None,
                starting=False,
                revision=self._revision(),
            )
            return
        is_cancelled = failure is not None and failure.cause is FailureCause.CANCELLATION
        if failure is not None and is_cancelled and self._systemd_is_stopping():
            # The end was not requested.
            failure = replace(failure, reason=f"{failure.reason}: the user's systemd is stopping")
            is_cancelled = False
        state = JobState.SUCCEEDED if failure is None else JobState.CANCELLED if is_cancelled else JobState.FAILED
        self._change(
            state=state,
            end=now(),
            exit_code=0 if failure is None else failure.exit_code,
            reason=None if failure is None else failure.reason,
            failed_rank=None if failure is None else failure.failed_rank,
            queue_position=None,
            waiting=None,
            starting=False,
            revision=self._revision(),
        )

    def upload(self) -> str | None:
        """Upload the finished record; return the reason of a failure, or None."""
        if self.write_error is not None:
            return None
        if self._upload is not None:
            # Two concurrent uploads might arrive in either order.
            self._upload.finish()
        upload_error = upload(self._directory)
        with suppress(OSError):
            # Another job may remove the record from now on.
            mark_lock_stale(self._directory)
        return upload_error

    def _revision(self) -> Revision:
        query, self._revision_query = self._revision_query, None
        if query is None:
            return self._record.revision
        return replace(query.answer(), digest=self._record.revision.digest)

    def _begin_upload(self) -> None:
        # Do not wait: the launcher's heartbeats to the nodes would stop.
        if self._revision_query is not None and self._revision_query.is_answered:
            self._change(revision=self._revision())
        with suppress(OSError):
            self._upload = start_upload(self._directory)

    def _change(self, **values: object) -> None:
        self._record = replace(self._record, **values)  # type: ignore[arg-type]  # fields by name, of several types
        self._write()

    def _write(self) -> None:
        if self.write_error is not None:
            return
        try:
            write_record(self._directory, self._record)
        except OSError as error:
            self.write_error = self._describe(error)

    def _describe(self, error: OSError) -> str:
        # Errors on an open file (a lock, a full disk) do not contain its name.
        return f"{error.filename or self._directory}: {error.strerror}"


def user_name() -> str:
    """Return this process's user name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
