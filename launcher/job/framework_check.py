"""Check before anything starts that the nodes have what the job's framework needs.

A command that names python or mpirun without a path runs the one from the cluster's ``engines`` environment. To use
others, name them by their path, or set another PATH with ``--env``.
"""

import asyncio
import shlex
from collections.abc import Sequence

from launcher.errors import LaunchError
from launcher.frameworks import FRAMEWORKS, LAUNCHED_BY_MPI
from launcher.hosts.hostfile import first_and_others
from launcher.spec import Job
from launcher.transport.connection import Connection

PYTHONS = ("python", "python3")


async def check_framework(job: Job, connections: Sequence[Connection]) -> None:
    """Raise LaunchError if a node of a cluster lacks what the job needs there."""
    engine, lacking = await nodes_lacking_framework(job, connections)
    if lacking:
        where = first_and_others([one.host for one in lacking])
        raise LaunchError(
            f"nothing started, no {engine} on {where}: nodes get it from the setting engines={engine} "
            "when they are made; or name your own Python by its path"
        )


async def nodes_lacking_framework(job: Job, connections: Sequence[Connection]) -> tuple[str | None, list[Connection]]:
    """Return what the job needs of the cluster's frameworks, and the nodes that lack it."""
    engine = FRAMEWORKS[job.framework].required_engine
    if engine is None or "PATH" in job.environment or not _uses_the_clusters(job):
        return engine, []
    # Import only now: jobs of PyTorch never ask.
    from launcher.sync.rpc import ask

    answers = await asyncio.gather(*(ask(one, operation="engines") for one in connections))
    pairs = zip(connections, (answer["engines"] for answer in answers), strict=True)
    return engine, [one for one, found in pairs if found is not None and engine not in found]


def _uses_the_clusters(job: Job) -> bool:
    return job.framework == LAUNCHED_BY_MPI or any(word in PYTHONS for word in _words(job.command))


def _words(command: Sequence[str]) -> list[str]:
    """Return the command's words; for a shell's command line, the words of the line."""
    # Assignments of variables may precede it.
    if command[-3:-1] != ("/bin/bash", "-c"):
        return list(command)
    try:
        return shlex.split(command[-1])
    except ValueError:  # the shell will report it
        return []
