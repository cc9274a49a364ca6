"""Whether the nodes have what the job's engine takes: asked before anything starts.

Python and mpirun of the cluster's ``engines`` are meant wherever a command names them without a path. Who
has others, on machines of a cluster or not, names them by their path, or another PATH with ``--env``.
"""

import asyncio
import shlex
from collections.abc import Sequence

from launcher.errors import LaunchError
from launcher.frameworks import FRAMEWORKS, LAUNCHED_BY_MPI
from launcher.hosts.hostfile import first_and_others
from launcher.job.spec import Job
from launcher.transport.connection import Connection

PYTHONS = ("python", "python3")


async def check_framework(job: Job, connections: Sequence[Connection]) -> None:
    """LaunchError when a node of a cluster lacks what the job would look for there."""
    takes, lacking = await nodes_lacking_framework(job, connections)
    if lacking:
        where = first_and_others([one.host for one in lacking])
        raise LaunchError(
            f"nothing started, no {takes} on {where}: nodes get it from the setting engines={takes} "
            "when they are made; or name your own Python by its path"
        )


async def nodes_lacking_framework(job: Job, connections: Sequence[Connection]) -> tuple[str | None, list[Connection]]:
    """What the job takes of the cluster's engines, and the nodes that do not have it."""
    takes = FRAMEWORKS[job.framework].takes
    if takes is None or "PATH" in job.environment or not _uses_the_clusters(job):
        return takes, []
    # Jobs of PyTorch need not wait for this.
    from launcher.sync.rpc import ask

    answers = await asyncio.gather(*(ask(one, operation="engines") for one in connections))
    pairs = zip(connections, (answer["engines"] for answer in answers), strict=True)
    return takes, [one for one, found in pairs if found is not None and takes not in found]


def _uses_the_clusters(job: Job) -> bool:
    return job.framework == LAUNCHED_BY_MPI or any(word in PYTHONS for word in _words(job.command))


def _words(command: Sequence[str]) -> list[str]:
    """The command's words; of one that a shell reads, those in its line."""
    # Variables may be before it.
    if command[-3:-1] != ("/bin/bash", "-c"):
        return list(command)
    try:
        return shlex.split(command[-1])
    except ValueError:  # the shell will say so
        return []
