"""Submit a durable job: store it in the bucket, then start its first attempt as a detached job."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from launcher.detached.detach import check_writable, detach
from launcher.detached.request import DurableStart
from launcher.durable import mirror
from launcher.durable.archive import scan_source
from launcher.durable.bucket import JobBucket, open_bucket
from launcher.durable.old_archives import archives_in_use
from launcher.durable.record import DurableRecord
from launcher.durable.requirements import notes
from launcher.job_records.key_name import key_name
from launcher.job_records.recorder import jobs_directory, user_name
from launcher.job_records.records import JobRecord, JobState, new_job_id, now, without_values
from launcher.recorded_run import print_notes
from launcher.spec import JobSpec

UNIT_PROGRAM = (str(Path(__file__).with_name("__main__.py")), "unit")
"""Program of a durable job's unit."""
STARTS_ANYWAY = 128 + signal.SIGINT
"""Exit code of `detach` after Ctrl-C, when the job starts anyway."""


def submit(job: JobSpec, arguments: Sequence[str], *, cwd: str, bucket: JobBucket | None = None) -> int:
    """Store the job and start it; remove it again if it cannot start."""
    bucket = bucket or open_bucket()
    check_writable(jobs_directory())
    print_notes(notes(job, cwd=cwd, environ=os.environ))
    record = store(job, arguments, cwd=cwd, bucket=bucket)
    code = 1
    try:
        start = DurableStart(job_id=record.job.id, program=UNIT_PROGRAM, started_by=record.job.started_by)
        code = detach(arguments, grace_s=job.grace_s, cwd=cwd, durable=start)
    finally:
        if code not in (0, STARTS_ANYWAY):
            mirror.close_job(record.job.id, bucket)
    return code


def store(job: JobSpec, arguments: Sequence[str], *, cwd: str, bucket: JobBucket) -> DurableRecord:
    """Store the job's files and record in the bucket, and the record here; return it."""
    with archives_in_use():
        files = None
        if job.sync is not None and job.sync.directory is not None:
            files = bucket.put_files(Path(cwd), scan_source(Path(cwd), job.sync))
        record = _new_record(job, arguments, cwd=cwd, files=files)
        bucket.put(record)
    mirror.write(record)
    return record


def _new_record(job: JobSpec, arguments: Sequence[str], *, cwd: str, files: str | None) -> DurableRecord:
    umask = os.umask(0o077)
    os.umask(umask)
    return DurableRecord(
        job=JobRecord(
            id=new_job_id(),
            state=JobState.WAITING,
            command=without_values(job.command),
            hosts=tuple(map(str, job.hosts)),
            framework=job.framework,
            cwd=cwd,
            user=user_name(),
            name=job.name,
            started_by=key_name(os.environ, user=user_name()),
            pid=0,
            submitted_at=now(),
            detached=True,
            grace_s=job.grace_s,
            durable=True,
        ),
        arguments=tuple(arguments),
        umask=umask,
        files=files,
    )
