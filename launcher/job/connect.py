"""Start a runner on each of the job's nodes, or on none."""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from bootstrap.contract import CLUSTER_KEY_FILE, NODE_CONFIG, WORKER_HOST_PREFIX
from launcher.errors import LaunchError, UnreachableError
from launcher.hosts.addresses import address_for_peers, address_of, check_reachable, is_here
from launcher.hosts.hostfile import LOCAL_HOST, Host, merge_reasons
from launcher.job.login_environment import session_environment
from launcher.transport.connection import Connection
from launcher.transport.pool.pool import ConnectionPool
from launcher.transport.ssh import runner_command, ssh_command, with_verbose_ssh

MAX_CONCURRENT = 32
READY_DEADLINE_S = 30.0
"""Deadline for login and start of the runner, in seconds; it also caps launcher.transport.ssh.CONNECT_TIMEOUT_S."""
SSH_FAILED = "connection ended with code 255"
"""The launcher's message for an error of ssh itself; see EXIT STATUS in ssh(1)."""
DENIED = "Permission denied"
NO_HOST_KEY = "Host key verification failed"
NO_KEY_EXCHANGE = "no matching key exchange method"
KEX_ADVICE = "; launch disables curve25519 between nodes; allow ecdh-sha2-nistp256 in sshd_config"
PERMANENT_ERRORS = (
    "Could not resolve hostname",
    NO_HOST_KEY,
    DENIED,
    "its runner speaks version",
    NO_KEY_EXCHANGE,
)
"""Messages of errors that a retry cannot fix."""
KEY_ERRORS = {NO_HOST_KEY, DENIED}
"""Errors that a retry may fix on a new node, which is listed before it knows all keys."""

Outcome = tuple[list[Connection], list[BaseException]]
"""Connections to the runners that answered, in host order, and the reasons why others did not."""


def is_this_machine(host: Host) -> bool:
    """Return True if `host` needs no ssh; a port may lead to a container or through a tunnel."""
    try:
        return host.port is None and is_here(address_of(host.name))
    except LaunchError:
        # An alias in ssh's configuration, or a name that ssh will reject.
        return False


def is_worker(config: Path = Path(NODE_CONFIG), key: Path = Path(CLUSTER_KEY_FILE)) -> bool:
    """Return True if this machine is a node of a cluster without the cluster's key."""
    return config.exists() and not os.access(key, os.R_OK)


def is_permanent(reason: str) -> bool:
    """Return True if a retry is useless."""
    errors = PERMANENT_ERRORS if not reason.startswith(WORKER_HOST_PREFIX) else set(PERMANENT_ERRORS) - KEY_ERRORS
    return any(error in reason for error in errors)


def with_advice(reason: str) -> str:
    """Return `reason` with advice if an option of launch or a habit from launch.py causes it.

    See launcher.transport.ssh.CLUSTER_OPTIONS; users of launch.py write localhost.
    """
    if NO_HOST_KEY in reason and reason.startswith(f"{LOCAL_HOST}:"):
        return f"{reason} No key is known for that name: use its host name instead, for example {socket.gethostname()}"
    if DENIED in reason and reason.startswith(WORKER_HOST_PREFIX) and is_worker():
        return f"{reason} Only the master has the cluster's key: run launch there"
    return reason + KEX_ADVICE if NO_KEY_EXCHANGE in reason and reason.startswith(WORKER_HOST_PREFIX) else reason


async def connect_all(hosts: Sequence[Host], *, local: bool, pool: ConnectionPool | None = None) -> list[Connection]:
    """Connect to every host; if that fails raise an error with every host without a runner."""
    connections, errors = await connect_available(hosts, local=local, pool=pool)
    if not errors:
        return connections
    await close_connections(connections)
    reasons = [with_advice(str(error)) for error in errors]
    final = any(map(is_permanent, reasons))
    raise UnreachableError(
        f"cannot reach {len(errors)} of {len(hosts)} nodes, nothing started: {merge_reasons(reasons)}", final=final
    )


async def connect_available(
    hosts: Sequence[Host], *, local: bool, deadline_s: float = READY_DEADLINE_S, pool: ConnectionPool | None = None
) -> Outcome:
    """Connect to each host that answers, without ssh to the first one if it is this machine.

    Reuse connections in `pool`.
    """
    at_once = asyncio.Semaphore(MAX_CONCURRENT)
    here = hosts[0] if local or is_this_machine(hosts[0]) else None
    own_environment = dict(os.environ)

    async def connect(host: Host) -> Connection:
        command = runner_command() if host is here else ssh_command(host)
        environment = session_environment(own_environment) if host is here and not local else own_environment
        async with at_once:
            resumed = None if host is here else await _resume_idle(host, pool)
            connection = resumed or await start_runner(host, command, deadline_s=deadline_s, environment=environment)
        if host is here:
            connection.is_here = True
            # On this machine sshd's connection is another one, such as the user's.
            connection.address = None
        return connection

    tasks = [asyncio.create_task(connect(host)) for host in hosts]
    try:
        await asyncio.wait(tasks)
    except BaseException:
        await _abandon(tasks)
        raise
    errors = [error for task in tasks if (error := task.exception())]
    return [task.result() for task in tasks if not task.exception()], errors


async def start_runner(
    host: Host, command: Sequence[str], *, deadline_s: float, environment: Mapping[str, str]
) -> Connection:
    """Start a runner; if ssh fails without a message, try once more with ssh's log level raised."""
    try:
        return await Connection.open(host, command, deadline_s=deadline_s, environment=environment)
    except LaunchError as error:
        if str(error) != f"{host}: {SSH_FAILED}":
            raise
    return await Connection.open(host, with_verbose_ssh(command), deadline_s=deadline_s, environment=environment)


async def _resume_idle(host: Host, pool: ConnectionPool | None) -> Connection | None:
    """Reuse the runner that an earlier launch left on `host`, if it still runs and its session is valid."""
    process = None if pool is None else pool.pop(host)
    if process is None:
        return None
    try:
        return await Connection.resume(host, process, deadline_s=READY_DEADLINE_S)
    except (LaunchError, ValueError, KeyError):
        return None


async def _abandon(tasks: Sequence[asyncio.Task[Connection]]) -> None:
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await close_connections([one for one in results if isinstance(one, Connection)])


async def close_connections(connections: Sequence[Connection]) -> None:
    """End runners and everything that they run."""
    await asyncio.gather(*(connection.kill() for connection in connections))


def peer_addresses(connections: Sequence[Connection]) -> tuple[str, ...]:
    """Return each node's address as the others can reach it."""
    names = [one.host.name for one in connections]
    addresses = tuple(address_for_peers(one.host.name, one.address) for one in connections)
    check_reachable(names, addresses)
    return addresses
