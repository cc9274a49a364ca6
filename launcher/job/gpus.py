"""Check that a job does not land on GPUs that are in use."""

import os
from collections.abc import Sequence

from launcher.errors import LaunchError
from launcher.frameworks import FRAMEWORKS
from launcher.hosts.hostfile import Host
from launcher.spec import Job
from launcher.transport.gpus_in_use import Gpus, GpusInUse

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_of(job: Job, host: Host) -> Gpus:
    """Return the GPUs of `host` that the job's processes take, as far as the launcher can know."""
    visible = _visible(job)
    if visible is not None:
        return tuple(one.strip() for one in visible.split(",") if one.strip())
    # One process a GPU, from the first. One process alone sees all of them: it may spawn one a GPU, or use all itself.
    return None if host.slots == 1 or FRAMEWORKS[job.framework].has_servers else tuple(map(str, range(host.slots)))


def _visible(job: Job) -> str | None:
    words = job.command[1:] if job.command[:1] == ("env",) else ()
    before = (word.partition("=")[2] for word in words if word.startswith(f"{VISIBLE}="))
    # With --launcher local the processes have the whole environment of the shell.
    return next(before, job.environment.get(VISIBLE, os.environ.get(VISIBLE) if job.local else None))


def check_gpus(job: Job, in_use: Sequence[GpusInUse]) -> None:
    """Raise LaunchError if the job would land on GPUs in use; `in_use` is what each of its hosts reported."""
    pairs = zip(job.hosts, in_use, strict=True)
    found = [f"{host}: {'; '.join(said)}" for host, there in pairs if (said := _clashes(gpus_of(job, host), there))]
    if found:
        raise LaunchError(f"nothing started, GPUs are in use (--force starts all the same): {', '.join(found)}")


def _clashes(wanted: Gpus, there: GpusInUse) -> list[str]:
    jobs = [f"job {job}" for job, gpus in there.jobs.items() if _overlap(wanted, gpus)]
    if jobs:
        return jobs
    return [f"GPU {index} by {who}" for index, uuid, who in there.processes if _takes(wanted, index, uuid)]


def _overlap(one: Gpus, other: Gpus) -> bool:
    if one is None or other is None:
        # All of none is none.
        return one != () and other != ()
    return bool(set(one) & set(other))


def _takes(wanted: Gpus, index: str, uuid: str) -> bool:
    return wanted is None or index in wanted or any(uuid.startswith(one) for one in wanted)
