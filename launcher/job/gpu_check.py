"""Check, from the nodes' reports, that a job gets no GPUs that are already in use.

launcher.runner.gpu_usage creates the report on a node; launcher.transport.gpus_in_use defines its format.
"""

import os
from collections.abc import Sequence

from launcher.errors import BusyError
from launcher.frameworks import load_framework
from launcher.hosts.hostfile import Host
from launcher.spec import JobSpec
from launcher.transport.gpus_in_use import GpuProcess, Gpus, GpusInUse

VISIBLE = "CUDA_VISIBLE_DEVICES"


def select_gpus(job: JobSpec, host: Host) -> Gpus:
    """Return the GPUs of `host` that the job's processes take, as far as the launcher knows."""
    visible = _visible(job)
    if visible is not None:
        return tuple(gpu.strip() for gpu in visible.split(",") if gpu.strip())
    # There is one process per GPU, from the first GPU on. A single process sees all GPUs and may use them all.
    takes_all = host.slots == 1 or load_framework(job.framework).has_servers
    return None if takes_all else tuple(map(str, range(host.slots)))


def allocated_gpus(job: JobSpec) -> dict[str, list[str] | None]:
    """Return the GPUs that the job takes on each host, by host name."""
    return {str(host): None if (gpus := select_gpus(job, host)) is None else list(gpus) for host in job.hosts}


def _visible(job: JobSpec) -> str | None:
    words = job.command[1:] if job.command[:1] == ("env",) else ()
    values = (word.partition("=")[2] for word in words if word.startswith(f"{VISIBLE}="))
    # With --launcher local the processes have the shell's whole environment.
    return next(values, job.environment.get(VISIBLE, os.environ.get(VISIBLE) if job.is_local else None))


def check_gpus(job: JobSpec, in_use: Sequence[GpusInUse]) -> None:
    """Raise BusyError if the job would use GPUs in use; `in_use` contains its hosts' reports."""
    pairs = zip(job.hosts, in_use, strict=True)
    conflicts = {
        str(host): f"{host}: {'; '.join(users)}"
        for host, report in pairs
        if (users := _conflicts(select_gpus(job, host), report))
    }
    if conflicts:
        detail = ", ".join(conflicts.values())
        advice = "--wait queues the job, --force starts anyway"
        raise BusyError(
            f"nothing started: GPUs are in use ({advice}): {detail}", detail=detail, users_by_node=conflicts
        )


def _conflicts(allocated: Gpus, report: GpusInUse) -> list[str]:
    """Return the jobs, or if there are none the processes, that use the allocated GPUs."""
    jobs = [f"job {job}" for job, gpus in report.jobs.items() if overlap(allocated, gpus)]
    if jobs:
        return jobs
    return [f"GPU {user.gpu_index} by {user.process}" for user in report.processes if _includes(allocated, user)]


def overlap(one: Gpus, other: Gpus) -> bool:
    """Return True if two selections of a node's GPUs intersect."""
    if one is None or other is None:
        # An empty selection overlaps nothing.
        return one != () and other != ()
    return bool(set(one) & set(other))


def _includes(allocated: Gpus, user: GpuProcess) -> bool:
    if allocated is None or user.gpu_index in allocated:
        return True
    return any(user.gpu_uuid.startswith(prefix) for prefix in allocated)
