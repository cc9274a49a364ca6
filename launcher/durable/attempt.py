"""Start a durable job's next attempt and, inside its unit, decide whether the attempt was the last."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.detached.detach import detach
from launcher.detached.request import DurableStart
from launcher.durable import mirror
from launcher.durable.bucket import JobBucket, open_bucket
from launcher.durable.record import DurableRecord
from launcher.durable.submit import UNIT_PROGRAM
from launcher.errors import LaunchError
from launcher.job.failure import Failure, FailureCause
from launcher.job_records.durable_state import DURABLE_RECORD_FILE, durable_directory, is_open
from launcher.job_records.records import JobState
from launcher.options.parser import parse_options
from launcher.spec import JobSpec


@dataclass(frozen=True, slots=True)
class DurableAttempt:
    """One attempt of a durable job."""

    job_id: str
    number: int

    def prepare(self, job: JobSpec) -> JobSpec:
        """Return the job to run in this attempt. Raises LaunchError if the job has been stopped."""
        if not is_open(self.job_id):
            raise LaunchError(f"job {self.job_id} is over or stopped")
        if self.number == 1 or job.sync is None:
            return job
        # Keep the changes that the job made on the surviving nodes.
        return replace(job, sync=replace(job.sync, keeps_changed_files=True))

    def is_stopped(self) -> bool:
        """Return True if ``launch stop`` ran before the launcher could receive its signal."""
        return not is_open(self.job_id)

    def stays_open(self, failure: Failure, state: JobState) -> bool:
        """Return True if the nodes caused the failure and nobody has stopped the job.

        A first attempt that neither ran nor waited is refused, like any other job. So is one whose nodes cannot run it,
        however long it waited.
        """
        has_waited = state is JobState.WAITING and failure.cause is not FailureCause.REFUSAL
        has_begun = self.number > 1 or state is JobState.RUNNING or has_waited
        ends_job = failure.cause in (FailureCause.PROCESS_EXIT, FailureCause.QUEUE_TIMEOUT)
        return has_begun and not ends_job and is_open(self.job_id)

    def finish(self, state: JobState) -> None:
        """Close the job if it is over."""
        if state.is_terminal:
            mirror.close_job(self.job_id)


def start_attempt(job_id: str, *, bucket: JobBucket | None = None) -> int:
    """Start the next attempt of a job in this process's environment; return 0 once it runs."""
    bucket = bucket or open_bucket()
    directory = durable_directory(job_id)
    if not is_open(job_id):
        raise LaunchError(f"job {job_id} is over or stopped")
    record = DurableRecord.from_bytes((directory / DURABLE_RECORD_FILE).read_bytes()).next_attempt()
    # No two attempts may have the same number, even if this master is lost now. Nothing writes the record after this
    # point, so a stop during the copy is final.
    mirror.update(record, bucket)
    try:
        cwd = restore_directory(record, directory / mirror.FILES, bucket=bucket)
    finally:
        if not (directory / DURABLE_RECORD_FILE).exists():
            mirror.remove(job_id)  # A stop cannot remove files while they are being unpacked.
    if not is_open(job_id):
        raise LaunchError(f"job {job_id} is over or stopped")
    os.umask(record.umask)
    os.chdir(cwd)
    job = parse_options(record.arguments, environ=os.environ)
    return detach(
        record.arguments,
        grace_s=job.grace_s,
        cwd=str(cwd),
        durable=DurableStart(
            job_id=job_id,
            program=UNIT_PROGRAM,
            attempt=record.job.attempt,
            submitted=record.job.submitted_at,
            started_by=record.job.started_by,
        ),
    )


def restore_directory(record: DurableRecord, files: Path, *, bucket: JobBucket) -> Path:
    """Return the directory in which the job was submitted, or its stored copy."""
    cwd = Path(record.job.cwd)
    if record.files is None:
        return cwd if cwd.is_dir() else Path.home()
    if not files.exists():
        bucket.fetch_files(record.files, files)
    return files
