"""Order the jobs that wait on this machine: first come, first served.

No list is stored. A job's position follows from its record, which counts while its launcher holds the job's lock, so a
dead job loses its position. Durable and other jobs share one queue, in the order of their submission.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from launcher.errors import LaunchError
from launcher.hosts.hostfile import LOCAL_HOST, Host
from launcher.job.connect import is_this_machine
from launcher.job.gpu_check import overlap
from launcher.job_records.lock import launcher_is_alive
from launcher.job_records.records import JobRecord, JobState, read_record


def live_jobs(jobs_dir: Path) -> list[JobRecord]:
    """Return the records of all jobs whose launcher is alive."""
    records = (read_record(directory) for directory in sorted(jobs_dir.glob("*")))
    return [record for record in records if record is not None and _is_live(jobs_dir / record.id, record)]


def _is_live(directory: Path, record: JobRecord) -> bool:
    if record.state.is_terminal:
        return False
    with suppress(LaunchError):  # If the file system cannot tell, keep the position.
        return launcher_is_alive(directory, record)
    return True


def own_and_others(records: Sequence[JobRecord], job_id: str) -> tuple[JobRecord | None, list[JobRecord]]:
    """Return the record of this job, or None, and the records of the other jobs."""
    own_record = next((record for record in records if record.id == job_id), None)
    return own_record, [record for record in records if record is not own_record]


def jobs_ahead_of(record: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the jobs ahead of this job: they were submitted earlier and are waiting or starting.

    A job that does not wait counts only if it starts on the same nodes.
    """
    earlier = [
        other for other in others if other.state in (JobState.PENDING, JobState.WAITING) and _is_earlier(other, record)
    ]
    return sorted((other for other in earlier if other.waits or allocations_conflict(record, other)), key=_submission)


def conflicting_jobs(record: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the jobs on nodes of this job: they are running or restarting, or their turn has come."""
    return [
        other
        for other in others
        if (other.state is JobState.RUNNING or other.starting) and allocations_conflict(record, other)
    ]


def jobs_overtaken_by(record: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the waiting jobs that this job would overtake on their nodes."""
    ahead = jobs_ahead_of(record, others)
    ahead += [other for other in others if other.starting and other not in ahead]
    return [other for other in ahead if other.waits and allocations_conflict(record, other)]


def allocations_conflict(record: JobRecord, other: JobRecord) -> bool:
    """Return True if two jobs take the same GPUs of a node, or both have ranks on a node without GPUs."""
    own_gpus, other_gpus = _allocation(record), _allocation(other)
    return any(overlap(gpus, other_gpus[host]) for host, gpus in own_gpus.items() if host in other_gpus)


def _allocation(record: JobRecord) -> dict[str, tuple[str, ...] | None]:
    # A record of an earlier release names no GPUs, which means all of them.
    gpus_by_host = ((_canonical(host), record.gpus.get(host)) for host in record.hosts)
    return {host: None if gpus is None else tuple(gpus) for host, gpus in gpus_by_host}


@cache
def _canonical(host: str) -> str:
    """Return one name for this machine: ``--launcher local`` and the hosts file use different names."""
    return LOCAL_HOST if host == LOCAL_HOST or (":" not in host and is_this_machine(Host(name=host))) else host


def _is_earlier(record: JobRecord, other: JobRecord) -> bool:
    return _submission(record) < _submission(other)


def _submission(record: JobRecord) -> tuple[str, str]:
    # Times have a resolution of one second; ids have milliseconds, in local time.
    return record.submitted_at, record.id
