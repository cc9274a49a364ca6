"""Choose nodes that no other job has, so that jobs on parts of the cluster run side by side."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launcher.errors import UsageError
from launcher.history.records import JobRecord
from launcher.hosts.hostfile import Host
from launcher.job.gpu_check import claimed_gpus
from launcher.job_queue.line import holders, living_jobs
from launcher.spec import Job


def claim(record: JobRecord, job: Job) -> JobRecord:
    """Return the job's record with the hosts and GPUs that the job would take."""
    return replace(record, hosts=tuple(map(str, job.hosts)), gpus=claimed_gpus(job))


def choose_free(job: Job, record: JobRecord, others: Sequence[JobRecord], *, least: int | None = None) -> Job:
    """Return the job on the first free nodes of the cluster; unchanged if fewer than `least` are free.

    `least` is the job's number of nodes unless given. Hosts of the user's own file (``-H``) keep their order.
    """
    source, wanted = job.host_source, len(job.hosts)
    if source is None or not source.of_cluster:
        return job
    try:
        listed = source.read()
    except UsageError:
        return job
    if wanted >= len(listed) or len({host.slots for host in listed}) > 1:
        return job
    hosts = tuple(host for host in listed if not _holders(job, host, record, others))[:wanted]
    if len(hosts) < (wanted if least is None else least) or hosts == job.hosts:
        return job
    restarts = replace(job.restarts, min_nodes=min(job.restarts.min_nodes, len(hosts)))
    return replace(job.with_hosts(hosts), restarts=restarts)


def hosts_of_others(job: Job, job_id: str, *, jobs: Path) -> frozenset[str]:
    """Return the names of the listed hosts that other jobs have, without those of the job itself."""
    if job.host_source is None:
        return frozenset()
    try:
        listed = job.host_source.read()
    except UsageError:
        return frozenset()
    living = living_jobs(jobs)
    record = next((each for each in living if each.id == job_id), None)
    if record is None:
        return frozenset()
    others = [each for each in living if each is not record]
    return frozenset(str(host) for host in listed if _holders(job, host, record, others))


def _holders(job: Job, host: Host, record: JobRecord, others: Sequence[JobRecord]) -> list[JobRecord]:
    return holders(claim(record, job.with_hosts((host,))), others)
