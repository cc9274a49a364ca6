"""Check, before anything starts, that the nodes have what the job's framework needs.

A command that names python or mpirun without a path gets the MXNet environment's (setting ``frameworks``).
To use another one, give its path, or set PATH with ``--env``.
"""

import asyncio
import shlex
from collections.abc import Sequence

from launcher.errors import RefusedError
from launcher.frameworks import LAUNCHED_BY_MPI, load_framework
from launcher.hosts.hostfile import first_and_others
from launcher.spec import JobSpec
from launcher.transport.connection import RunnerConnection

PYTHONS = ("python", "python3")


async def check_framework(job: JobSpec, connections: Sequence[RunnerConnection]) -> None:
    """Raise RefusedError if a node of a cluster lacks the job's framework."""
    framework, nodes = await nodes_without_framework(job, connections)
    if nodes:
        where = first_and_others([connection.host for connection in nodes])
        raise RefusedError(
            f"nothing started: no {framework} on {where}: nodes get it from the setting frameworks={framework} "
            "when they are made; or name your own Python by its path"
        )


async def check_venv(job: JobSpec, connections: Sequence[RunnerConnection]) -> None:
    """Raise RefusedError if a node lacks the Python environment that the user named."""
    if job.venv is None:
        return
    # Import only now: most jobs name none.
    from launcher.transport.rpc import call

    answers = await asyncio.gather(
        *(call(connection, operation="venv", directory=job.venv) for connection in connections)
    )
    hosts = [
        connection.host for connection, answer in zip(connections, answers, strict=True) if not answer["has_python"]
    ]
    if hosts:
        where = first_and_others(hosts)
        raise RefusedError(f"nothing started: no {job.venv}/bin/python on {where}: make it on every node (setup)")


async def nodes_without_framework(
    job: JobSpec, connections: Sequence[RunnerConnection]
) -> tuple[str | None, list[RunnerConnection]]:
    """Return the framework that the nodes must have installed, and the nodes without it."""
    framework = load_framework(job.framework).required_setting
    if framework is None or "PATH" in job.environment or not _uses_cluster_environment(job):
        return framework, []
    # Imported late: jobs of PyTorch do not need it.
    from launcher.transport.rpc import call

    answers = await asyncio.gather(*(call(connection, operation="frameworks") for connection in connections))
    pairs = zip(connections, (answer["frameworks"] for answer in answers), strict=True)
    return framework, [one for one, installed in pairs if installed is not None and framework not in installed]


def _uses_cluster_environment(job: JobSpec) -> bool:
    return job.framework == LAUNCHED_BY_MPI or any(word in PYTHONS for word in _words(job.command))


def _words(command: Sequence[str]) -> list[str]:
    """Return the words of the command, or those of the command line that it passes to a shell."""
    # Variable assignments may precede it.
    if command[-3:-1] != ("/bin/bash", "-c"):
        return list(command)
    try:
        return shlex.split(command[-1])
    except ValueError:  # The shell will report it.
        return []
