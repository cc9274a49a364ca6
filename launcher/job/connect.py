"""Start a runner on each of the job's nodes, or nothing anywhere."""

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
from launcher.transport.ssh import louder, runner_command, ssh_command

CONNECTIONS_AT_ONCE = 32
READY_DEADLINE_S = 30.0
SSH_FAILED = "connection ended with code 255"
"""The launcher's own words for it; see EXIT STATUS in ssh(1)."""
DENIED = "Permission denied"
NO_HOST_KEY = "Host key verification failed"
NO_KEY_EXCHANGE = "no matching key exchange method"
TAKE_ANOTHER = (
    "; launch takes none of curve25519 among the cluster's nodes: have that sshd take ecdh-sha2-nistp256 too "
    "(KexAlgorithms in its sshd_config)"
)
FOR_GOOD = (
    "Could not resolve hostname",
    NO_HOST_KEY,
    DENIED,
    "its runner speaks version",
    NO_KEY_EXCHANGE,
)
"""Messages about what is wrong with a host for good, and not only at the moment."""

KEYS = {NO_HOST_KEY, DENIED}

Answers = tuple[list[Connection], list[BaseException]]
"""The runners that answered, in the order of their hosts, and why the others did not."""


def is_this_machine(host: Host) -> bool:
    """Return whether `host` needs no ssh; a port may lead to a container or through a tunnel."""
    try:
        return host.port is None and is_here(address_of(host.name))
    except LaunchError:
        # An alias of ssh's configuration, or a name that ssh will report.
        return False


def is_worker(config: Path = Path(NODE_CONFIG), key: Path = Path(CLUSTER_KEY_FILE)) -> bool:
    """Return whether this machine is a node of a cluster without the cluster's key."""
    return config.exists() and not os.access(key, os.R_OK)


def is_for_good(reason: str) -> bool:
    """Return whether a retry is useless. The cluster's new nodes may be listed before they know all keys."""
    words = FOR_GOOD if not reason.startswith(WORKER_HOST_PREFIX) else set(FOR_GOOD) - KEYS
    return any(word in reason for word in words)


def with_advice(reason: str) -> str:
    """Return `reason` with what to do about it, where the cause is launch's own choice or an old habit.

    See launcher.transport.ssh.CLUSTER_OPTIONS; launch.py's users write localhost.
    """
    if NO_HOST_KEY in reason and reason.startswith(f"{LOCAL_HOST}:"):
        return f"{reason} No key is kept for that name: name this machine as the others do, {socket.gethostname()} say"
    if DENIED in reason and reason.startswith(WORKER_HOST_PREFIX) and is_worker():
        return f"{reason} Only the master has the cluster's key: run launch there"
    return reason + TAKE_ANOTHER if NO_KEY_EXCHANGE in reason and reason.startswith(WORKER_HOST_PREFIX) else reason


async def connect(hosts: Sequence[Host], *, local: bool, pool: ConnectionPool | None = None) -> list[Connection]:
    """Connect to every host, or raise an error that names every host without a runner."""
    found, errors = await reach(hosts, local=local, pool=pool)
    if not errors:
        return found
    await close_connections(found)
    reasons = [with_advice(str(error)) for error in errors]
    final = any(map(is_for_good, reasons))
    raise UnreachableError(
        f"nothing started, {len(errors)} of {len(hosts)} nodes: {merge_reasons(reasons)}", final=final
    )


async def reach(
    hosts: Sequence[Host], *, local: bool, deadline_s: float = READY_DEADLINE_S, pool: ConnectionPool | None = None
) -> Answers:
    """Connect to each host that answers; to the first without ssh if it is this machine.

    Connections in `pool` are reused.
    """
    at_once = asyncio.Semaphore(CONNECTIONS_AT_ONCE)
    here = hosts[0] if local or is_this_machine(hosts[0]) else None
    ours = dict(os.environ)

    async def start(host: Host) -> Connection:
        command = runner_command() if host is here else ssh_command(host)
        environment = session_environment(ours) if host is here and not local else ours
        async with at_once:
            resumed = None if host is here else await _resume(host, pool)
            connection = resumed or await _open(host, command, deadline_s=deadline_s, environment=environment)
        if host is here:
            connection.is_here = True
            # On this machine sshd took some other connection, such as the user's.
            connection.address = None
        return connection

    tasks = [asyncio.create_task(start(host)) for host in hosts]
    try:
        await asyncio.wait(tasks)
    except BaseException:
        await _abandon(tasks)
        raise
    errors = [error for task in tasks if (error := task.exception())]
    return [task.result() for task in tasks if not task.exception()], errors


async def _open(host: Host, command: Sequence[str], *, deadline_s: float, environment: Mapping[str, str]) -> Connection:
    """Open a connection; if ssh fails without a message, try once more with ssh's log level raised."""
    try:
        return await Connection.open(host, command, deadline_s=deadline_s, environment=environment)
    except LaunchError as error:
        if str(error) != f"{host}: {SSH_FAILED}":
            raise
    return await Connection.open(host, louder(command), deadline_s=deadline_s, environment=environment)


async def _resume(host: Host, pool: ConnectionPool | None) -> Connection | None:
    """Reuse the runner that an earlier launch left on `host`, if it is still there and valid."""
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
    opened = await asyncio.gather(*tasks, return_exceptions=True)
    await close_connections([one for one in opened if isinstance(one, Connection)])


async def close_connections(connections: Sequence[Connection]) -> None:
    """End runners and everything that they run."""
    await asyncio.gather(*(connection.kill() for connection in connections))


def peer_addresses(connections: Sequence[Connection]) -> tuple[str, ...]:
    """Return each node's address as the others can reach it."""
    seen = [one.address for one in connections]
    names = [one.host.name for one in connections]
    addresses = tuple(address_for_peers(*pair) for pair in zip(names, seen, strict=True))
    check_reachable(names, addresses)
    return addresses
