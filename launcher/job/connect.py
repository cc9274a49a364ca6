"""Start runners on the job's nodes: `connect_all` needs every node, `connect_available` keeps those that answer."""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bootstrap.contract import CLUSTER_KEY_FILE, NODE_CONFIG_FILE, NODE_HOST_PREFIX
from launcher.errors import ErrorKind, LaunchError, NodeError, UnreachableError
from launcher.hosts.addresses import address_for_peers, check_reachable, is_own_address, resolve_address
from launcher.hosts.hostfile import LOCAL_HOST, Host, merge_errors
from launcher.job.login_environment import session_environment
from launcher.transport.connection import RunnerConnection
from launcher.transport.pool.pool import ConnectionPool
from launcher.transport.ssh import runner_command, ssh_command, with_verbose_ssh

MAX_CONCURRENT = 32
READY_TIMEOUT_S = 30.0
"""Timeout for logging in and starting the runner, in seconds; also caps launcher.transport.ssh.CONNECT_TIMEOUT_S."""
KEX_ADVICE = "; launch disables curve25519 between nodes; allow ecdh-sha2-nistp256 in sshd_config"
PERMANENT_ERRORS = frozenset(
    (
        ErrorKind.UNKNOWN_HOST,
        ErrorKind.UNKNOWN_HOST_KEY,
        ErrorKind.LOGIN_DENIED,
        ErrorKind.OTHER_VERSION,
        ErrorKind.NO_KEY_EXCHANGE,
    )
)
"""Kinds of errors that a retry cannot fix, except KEY_ERRORS between the nodes of a cluster."""
KEY_ERRORS = frozenset((ErrorKind.UNKNOWN_HOST_KEY, ErrorKind.LOGIN_DENIED))
"""Kinds that a retry may fix if the host is a node: a new node is listed before it knows all keys."""


class ConnectResult(NamedTuple):
    """Runners that answered, and errors of the other hosts."""

    connections: list[RunnerConnection]
    """Connections in host order."""
    errors: list[BaseException]


def is_this_machine(host: Host) -> bool:
    """Return True if `host` needs no ssh; with a port, it may be a container or a tunnel's end."""
    try:
        return host.port is None and is_own_address(resolve_address(host.name))
    except LaunchError:
        # An alias in ssh's configuration, or a name that ssh will reject.
        return False


def lacks_cluster_key(config: Path = Path(NODE_CONFIG_FILE), key: Path = Path(CLUSTER_KEY_FILE)) -> bool:
    """Return True if this machine is a node of a cluster whose key this user cannot read, as on every worker."""
    return config.exists() and not os.access(key, os.R_OK)


def is_permanent(error: BaseException) -> bool:
    """Return True if a retry is useless."""
    if not isinstance(error, NodeError):
        return False
    is_cluster_node = error.host.startswith(NODE_HOST_PREFIX)
    return error.kind in (PERMANENT_ERRORS - KEY_ERRORS if is_cluster_node else PERMANENT_ERRORS)


def with_advice(error: BaseException) -> BaseException:
    """Return the error, with advice if an option of launch, the machine or a hosts file for MXNet is its cause."""
    if not isinstance(error, NodeError):
        return error
    return NodeError(error.host, error.cause + _advice(error), kind=error.kind)


def _advice(error: NodeError) -> str:
    """Return the advice to add to the error's message; empty if there is none."""
    is_cluster_node = error.host.startswith(NODE_HOST_PREFIX)
    # Hosts files that were written for MXNet's tools/launch.py contain localhost.
    if error.kind == ErrorKind.UNKNOWN_HOST_KEY and error.host.partition(":")[0] == LOCAL_HOST:
        return f" No key is known for that name: use its host name instead, for example {socket.gethostname()}"
    if error.kind == ErrorKind.LOGIN_DENIED and is_cluster_node and lacks_cluster_key():
        return " Only the master has the cluster's key: run launch there"
    # CLUSTER_OPTIONS disables some key exchanges.
    return KEX_ADVICE if error.kind == ErrorKind.NO_KEY_EXCHANGE and is_cluster_node else ""


async def connect_all(
    hosts: Sequence[Host], *, is_local: bool, pool: ConnectionPool | None = None
) -> list[RunnerConnection]:
    """Connect to every host. Raises UnreachableError, naming every host that did not answer."""
    connections, errors = await connect_available(hosts, is_local=is_local, pool=pool)
    if not errors:
        return connections
    await close_connections(connections)
    permanent = any(map(is_permanent, errors))
    raise UnreachableError(
        f"cannot reach {len(errors)} of {len(hosts)} nodes, nothing started: {merge_errors(map(with_advice, errors))}",
        permanent=permanent,
    )


async def connect_available(
    hosts: Sequence[Host], *, is_local: bool, timeout_s: float = READY_TIMEOUT_S, pool: ConnectionPool | None = None
) -> ConnectResult:
    """Connect to each host that answers, without ssh to the first one if it is this machine.

    Reuses connections in `pool`.
    """
    at_once = asyncio.Semaphore(MAX_CONCURRENT)
    local_host = hosts[0] if is_local or is_this_machine(hosts[0]) else None
    own_environment = dict(os.environ)

    async def connect(host: Host) -> RunnerConnection:
        command = runner_command() if host is local_host else ssh_command(host)
        environment = session_environment(own_environment) if host is local_host and not is_local else own_environment
        async with at_once:
            resumed = None if host is local_host else await _resume_idle(host, pool)
            connection = resumed or await start_runner(host, command, timeout_s=timeout_s, environment=environment)
        if host is local_host:
            connection.is_local = True
            # SSH_CONNECTION describes the user's own login here, so its address means nothing to the other nodes.
            connection.address = None
        return connection

    tasks = [asyncio.create_task(connect(host)) for host in hosts]
    try:
        await asyncio.wait(tasks)
    except BaseException:
        await _abandon(tasks)
        raise
    errors = [error for task in tasks if (error := task.exception())]
    return ConnectResult([task.result() for task in tasks if not task.exception()], errors)


async def start_runner(
    host: Host, command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str]
) -> RunnerConnection:
    """Start a runner; if ssh fails without a message, retry once with a higher log level."""
    try:
        return await RunnerConnection.open(host, command, timeout_s=timeout_s, environment=environment)
    except NodeError as error:
        if error.kind != ErrorKind.SILENT_SSH:
            raise
    return await RunnerConnection.open(host, with_verbose_ssh(command), timeout_s=timeout_s, environment=environment)


async def _resume_idle(host: Host, pool: ConnectionPool | None) -> RunnerConnection | None:
    """Reuse the runner that an earlier launch left on `host` if it is still running and its session is valid."""
    process = None if pool is None else pool.pop(host)
    if process is None:
        return None
    try:
        return await RunnerConnection.resume(host, process, timeout_s=READY_TIMEOUT_S)
    except (LaunchError, ValueError, KeyError):
        return None


async def _abandon(tasks: Sequence[asyncio.Task[RunnerConnection]]) -> None:
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await close_connections([result for result in results if isinstance(result, RunnerConnection)])


async def close_connections(connections: Sequence[RunnerConnection]) -> None:
    """End runners and everything that they run."""
    await asyncio.gather(*(connection.kill() for connection in connections))


def peer_addresses(connections: Sequence[RunnerConnection]) -> tuple[str, ...]:
    """Return each node's address as the others can reach it."""
    names = [connection.host.name for connection in connections]
    addresses = tuple(address_for_peers(connection.host.name, connection.address) for connection in connections)
    check_reachable(names, addresses)
    return addresses
