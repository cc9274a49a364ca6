"""Order the jobs queued on this machine: first come, first served.

No list is stored. A job's place follows from its record, which counts while its launcher holds the job's lock, so a
dead job loses its place. Durable and other jobs share one queue, in the order of their submission.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from launcher.errors import LaunchError
from launcher.history.lock import is_alive
from launcher.history.records import JobRecord, JobState, read_record
from launcher.hosts.hostfile import LOCAL_HOST, Host
from launcher.job.connect import is_this_machine
from launcher.job.gpu_check import overlap


def living_jobs(jobs: Path) -> list[JobRecord]:
    """Return the records of all jobs whose launcher is alive."""
    records = (read_record(directory) for directory in sorted(jobs.glob("*")))
    return [record for record in records if record is not None and _lives(jobs / record.id, record)]


def _lives(directory: Path, record: JobRecord) -> bool:
    if record.state.is_terminal:
        return False
    with suppress(LaunchError):  # If the file system cannot tell, keep the place.
        return is_alive(directory, record)
    return True


def ahead_of(me: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the jobs ahead of this one: those submitted earlier that are waiting or starting.

    A job that does not wait counts only if it starts on the same nodes.
    """
    earlier = [
        other for other in others if other.state in (JobState.PENDING, JobState.WAITING) and _came_first(other, me)
    ]
    return sorted((other for other in earlier if other.waits or share_nodes(me, other)), key=_submission)


def jobs_using_nodes_of(me: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the jobs that use nodes of this one: those running or restarting, and those whose turn has come."""
    return [other for other in others if (other.state is JobState.RUNNING or other.starting) and share_nodes(me, other)]


def jobs_overtaken_by(me: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the queued jobs that this one would overtake on their nodes."""
    first = ahead_of(me, others)
    first += [other for other in others if other.starting and other not in first]
    return [other for other in first if other.waits and share_nodes(me, other)]


def share_nodes(one: JobRecord, other: JobRecord) -> bool:
    """Return True if two jobs take the same GPUs of a node, or both have ranks on a node without GPUs."""
    mine, others = _claims(one), _claims(other)
    return any(overlap(gpus, others[host]) for host, gpus in mine.items() if host in others)


def _claims(record: JobRecord) -> dict[str, tuple[str, ...] | None]:
    # A record of an earlier release names no GPUs, which means all of them.
    found = ((_canonical(host), record.gpus.get(host)) for host in record.hosts)
    return {host: None if gpus is None else tuple(gpus) for host, gpus in found}


@cache
def _canonical(host: str) -> str:
    """Return one name for this machine: ``--launcher local`` and the hosts file use different ones."""
    return LOCAL_HOST if host == LOCAL_HOST or (":" not in host and is_this_machine(Host(name=host))) else host


def _came_first(one: JobRecord, other: JobRecord) -> bool:
    return _submission(one) < _submission(other)


def _submission(record: JobRecord) -> tuple[str, str]:
    # Times have a resolution of one second; ids have milliseconds, in local time.
    return record.start, record.id
