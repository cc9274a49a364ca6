"""Choose nodes that no other job has, so that jobs on parts of the cluster run side by side."""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path

from launcher.errors import UsageError
from launcher.frameworks import LAUNCHED_BY_MPI
from launcher.hosts.hostfile import Host
from launcher.job.gpu_check import allocated_gpus
from launcher.job_queue.queue import jobs_on_nodes_of, live_jobs, own_and_others
from launcher.job_queue.queue_lock import locked_queue
from launcher.job_records.records import JobRecord
from launcher.spec import JobSpec


def with_allocation(record: JobRecord, job: JobSpec) -> JobRecord:
    """Return the job's record with the hosts and GPUs that it would have if `job` got them."""
    return replace(record, hosts=tuple(map(str, job.hosts)), gpus=allocated_gpus(job))


def select_free_nodes(
    job: JobSpec,
    record: JobRecord,
    others: Sequence[JobRecord],
    *,
    in_use: Container[str] = (),
    min_nodes: int | None = None,
) -> JobSpec:
    """Return the job on the first free nodes of the cluster; unchanged if too few are free.

    `in_use` names nodes that are not free, besides those of `others`; `min_nodes` are enough, if given. Hosts of the
    user's own file (``-H``) keep their order. mpirun needs its own machine as the first of several hosts.
    """
    source, count = job.host_source, len(job.hosts)
    min_nodes = count if min_nodes is None else min(min_nodes, count)
    if source is None or not source.of_cluster or _starts_on_first(job):
        return job
    try:
        listed = source.read()
    except UsageError:
        return job
    if min_nodes >= len(listed) or len({host.slots for host in listed}) > 1:
        return job
    free = [host for host in listed if str(host) not in in_use and not _jobs_using(host, job, record, others)]
    return job if len(free) < min_nodes else job.with_hosts(tuple(free[:count]))


def _jobs_using(host: Host, job: JobSpec, record: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    return jobs_on_nodes_of(with_allocation(record, job.with_hosts((host,))), others)


class HostAllocator:
    """Allocator of hosts, which keeps two jobs from restarting on the same nodes."""

    def __init__(self, job_id: str, *, jobs_dir: Path, record: Callable[[JobSpec], None]) -> None:
        """`record` writes the nodes that the job takes into its record (QueueObserver.on_allocated)."""
        self._job_id = job_id
        self._jobs_dir = jobs_dir
        self._record = record

    def order(self, job: JobSpec, listed: Sequence[Host]) -> tuple[list[Host], list[str]]:
        """Return the hosts for a restart: the job's own, free hosts, and other jobs' hosts if they may be shared.

        With them the reasons why hosts are left out. mpirun's own machine comes first; without it there are no hosts.
        """
        first = str(job.hosts[0]) if _starts_on_first(job) else ""
        if first and listed and first not in map(str, listed):
            return [], [f"{first}: not in the hosts file, and mpirun runs there"]
        own_record, others = self._read()
        if own_record is None or job.host_source is None:
            return list(listed), []
        taken = {host: users[0] for host in listed if (users := _jobs_using(host, job, own_record, others))}
        own_hosts = [host for host in listed if str(host) in own_record.hosts and host not in taken]
        free_hosts = [host for host in listed if host not in own_hosts and host not in taken]
        if _shares_nodes(job):
            return _put_first([*own_hosts, *free_hosts, *taken], first), []
        reasons = {str(host): f"{host}: job {other.id} has it" for host, other in taken.items()}
        if first in reasons:
            return [], [f"{reasons[first]}, and mpirun runs there"]
        return _put_first([*own_hosts, *free_hosts], first), [*reasons.values()]

    async def allocate(self, job: JobSpec) -> str:
        """Record that the job starts again on its hosts; return the reason if another job has just taken one."""
        async with locked_queue(self._jobs_dir):
            own_record, others = self._read()
            users = []
            if own_record is not None and not _shares_nodes(job):
                users = jobs_on_nodes_of(with_allocation(own_record, job), others)
            if users:
                return f"job {users[0].id} has taken a node"
            self._record(job)
        return ""

    def _read(self) -> tuple[JobRecord | None, list[JobRecord]]:
        return own_and_others(live_jobs(self._jobs_dir), self._job_id)


def _starts_on_first(job: JobSpec) -> bool:
    """Return True for mpirun on several hosts: only its own machine has the key for the others."""
    return job.framework == LAUNCHED_BY_MPI and len(job.hosts) > 1


def _put_first(hosts: Sequence[Host], first: str) -> list[Host]:
    return sorted(hosts, key=lambda host: str(host) != first)


def _shares_nodes(job: JobSpec) -> bool:
    """Return True if the job may run on nodes that another job has."""
    return job.force or not (job.has_gpus or (job.queue_policy is not None and job.queue_policy.exclusive))
