"""Allocate nodes at once: at the start of a job that does not wait, and for a restart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from launcher.errors import BusyError, LaunchError
from launcher.hosts.hostfile import Host
from launcher.job.restarts import UsableHosts, describe_hosts
from launcher.job_queue.free_hosts import jobs_using, select_free_nodes, starts_on_first, with_allocation
from launcher.job_queue.queue import conflicting_jobs, jobs_overtaken_by, live_jobs, own_and_others
from launcher.job_queue.queue_lock import locked_queue
from launcher.job_records.lock import is_on_other_machine
from launcher.job_records.records import JobRecord, JobState
from launcher.output.notes import print_note
from launcher.output.sink import Streams
from launcher.spec import JobSpec
from launcher.transport.protocol import FrameType


class QueueObserver(Protocol):
    """Recorder of the job's position in the queue (launcher.job_records.recorder)."""

    def on_waiting(self, text: str, *, queue_position: int) -> None:
        """Handle a change of the job's queue position, counted from 1; `text` describes it for the user."""

    def on_allocated(self, job: JobSpec) -> None:
        """Handle the allocation of the nodes of `job`: from now on the job owns them."""

    def on_waiting_again(self) -> None:
        """Handle the loss of the allocation: the job has to wait in the queue again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueContext:
    """Context in which a job gets its nodes: the directory of its record, its outputs and its observer."""

    job_id: str
    jobs_dir: Path
    """Directory of this machine's jobs."""
    streams: Streams
    observer: QueueObserver


async def allocate_now(job: JobSpec, queue_context: QueueContext) -> JobSpec:
    """Allocate the nodes of a job without --wait at once: record that the job has them. Return the job on its nodes."""
    async with locked_queue(queue_context.jobs_dir):
        chosen = job if job.force else select_nodes(job, queue_context.job_id, jobs_dir=queue_context.jobs_dir)
        queue_context.observer.on_allocated(chosen)
    if chosen.hosts != job.hosts:
        await print_note(describe_choice(chosen, requested=job.hosts), queue_context.streams[FrameType.STDERR])
    return chosen


def select_nodes(job: JobSpec, job_id: str, *, jobs_dir: Path) -> JobSpec:
    """Select the nodes of a job without --wait: free nodes if there are enough.

    Raises LaunchError if an earlier job waits for its nodes, or has their GPUs: the nodes' own reports come too late
    for a job that starts at the same moment as this one.
    """
    own_record, others = own_and_others(live_jobs(jobs_dir), job_id)
    if own_record is None:
        return job
    # Jobs of other machines that share this home directory are known late; the nodes report them.
    local = [record for record in others if not is_on_other_machine(record)]
    # Another job may be waiting for the free nodes.
    if job.has_gpus and not any(_waits_in_queue(record) for record in local):
        job = select_free_nodes(job, own_record, local)
    own_record = with_allocation(own_record, job)
    if overtaken := jobs_overtaken_by(own_record, others):
        raise LaunchError(
            f"nothing started: {name_job(overtaken[0])} is waiting for these nodes (--wait queues the job behind it, "
            "--force starts anyway)"
        )
    if job.has_gpus and (blocking := conflicting_jobs(own_record, local)):
        detail = f"in use by {name_job(blocking[0])}"
        advice = "--wait queues the job, --force starts anyway"
        raise BusyError(f"nothing started: GPUs are {detail} ({advice})", detail=detail)
    return job


def _waits_in_queue(record: JobRecord) -> bool:
    return record.waits and not record.starting and record.state in (JobState.PENDING, JobState.WAITING)


class HostAllocator:
    """Allocator of hosts, which keeps two jobs from restarting on the same nodes."""

    def __init__(self, job_id: str, *, jobs_dir: Path, record: Callable[[JobSpec], None]) -> None:
        """`record` writes the nodes that the job takes into its record (QueueObserver.on_allocated)."""
        self._job_id = job_id
        self._jobs_dir = jobs_dir
        self._record = record

    def usable_hosts(self, job: JobSpec, listed: Sequence[Host]) -> UsableHosts:
        """Return the hosts for a restart: the job's own, free hosts, and other jobs' hosts if they may be shared.

        mpirun's own machine comes first; without it no host is usable.
        """
        first = str(job.hosts[0]) if starts_on_first(job) else ""
        if first and listed and first not in map(str, listed):
            return UsableHosts([], [f"{first}: not in the hosts file, and mpirun runs there"])
        own_record, others = self._read()
        if own_record is None or job.host_source is None:
            return UsableHosts(list(listed), [])
        taken = {host: users[0] for host in listed if (users := jobs_using(host, job, own_record, others))}
        own_hosts = [host for host in listed if str(host) in own_record.hosts and host not in taken]
        free_hosts = [host for host in listed if host not in own_hosts and host not in taken]
        if _may_share_nodes(job):
            return UsableHosts(_put_first([*own_hosts, *free_hosts, *taken], first), [])
        reasons = {str(host): f"{host}: job {other.id} has it" for host, other in taken.items()}
        if first in reasons:
            return UsableHosts([], [f"{reasons[first]}, and mpirun runs there"])
        return UsableHosts(_put_first([*own_hosts, *free_hosts], first), [*reasons.values()])

    async def allocate(self, job: JobSpec) -> str:
        """Record that the job starts again on its hosts; return the reason if another job has just taken one."""
        async with locked_queue(self._jobs_dir):
            own_record, others = self._read()
            users = []
            if own_record is not None and not _may_share_nodes(job):
                users = conflicting_jobs(with_allocation(own_record, job), others)
            if users:
                return f"job {users[0].id} has taken a node"
            self._record(job)
        return ""

    def _read(self) -> tuple[JobRecord | None, list[JobRecord]]:
        return own_and_others(live_jobs(self._jobs_dir), self._job_id)


def _put_first(hosts: Sequence[Host], first: str) -> list[Host]:
    return sorted(hosts, key=lambda host: str(host) != first)


def _may_share_nodes(job: JobSpec) -> bool:
    """Return True if the job may run on nodes that another job has."""
    return job.force or not (job.has_gpus or (job.queue_policy is not None and job.queue_policy.exclusive))


def describe_choice(job: JobSpec, *, requested: Sequence[Host]) -> str:
    """Say on which nodes a job starts because other jobs have the first nodes, or the rest of the requested nodes."""
    used = "the earlier hosts in the file" if len(job.hosts) == len(requested) else "the remaining nodes"
    return f"starting on {describe_hosts(job.hosts, requested=requested)}, because other jobs are using {used}"


def name_job(record: JobRecord) -> str:
    """Describe a job by its id, its name and who started it: by the SSH key's name, because all may share a user."""
    name = f" {record.name!r}" if record.name else ""
    return f"job {record.id}{name} of {record.started_by or record.user}"
