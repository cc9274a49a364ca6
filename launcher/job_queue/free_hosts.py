"""Choose nodes that no other job has, so that jobs on parts of the cluster run side by side."""

from collections.abc import Container, Sequence
from dataclasses import replace

from launcher.errors import UsageError
from launcher.frameworks import LAUNCHED_BY_MPI
from launcher.hosts.hostfile import Host
from launcher.job.gpu_check import allocated_gpus
from launcher.job_queue.queue import conflicting_jobs
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
    if source is None or not source.of_cluster or starts_on_first(job):
        return job
    try:
        listed = source.read()
    except UsageError:
        return job
    if min_nodes >= len(listed) or len({host.slots for host in listed}) > 1:
        return job
    free = [host for host in listed if str(host) not in in_use and not jobs_using(host, job, record, others)]
    return job if len(free) < min_nodes else job.with_hosts(tuple(free[:count]))


def jobs_using(host: Host, job: JobSpec, record: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the jobs among `others` that have what `job`, whose record is `record`, would take of `host`."""
    return conflicting_jobs(with_allocation(record, job.with_hosts((host,))), others)


def starts_on_first(job: JobSpec) -> bool:
    """Return True for mpirun on several hosts: only its own machine has the key for the others."""
    return job.framework == LAUNCHED_BY_MPI and len(job.hosts) > 1
