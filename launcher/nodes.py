"""The job's nodes before the job: a runner on each, or nothing anywhere."""

import asyncio
from collections.abc import Sequence

from launcher.addresses import address_for_peers, address_of, check_reachable, is_here
from launcher.connection import Connection
from launcher.errors import LaunchError
from launcher.hosts import Host
from launcher.ssh import runner_command, ssh_command

CONNECTIONS_AT_ONCE = 32
READY_DEADLINE_S = 30.0


def is_this_machine(host: Host) -> bool:
    """Whether `host` needs no ssh; a port may lead to a container or through a tunnel."""
    try:
        return host.port is None and is_here(address_of(host.name))
    except LaunchError:
        # An alias of ssh's configuration, or a name that ssh will complain of.
        return False


async def connect(hosts: Sequence[Host], *, here: bool) -> list[Connection]:
    """A runner on each host, the first on this machine if `here`; or an error that names every host without one."""
    at_once = asyncio.Semaphore(CONNECTIONS_AT_ONCE)

    async def reach(host: Host, command: Sequence[str]) -> Connection:
        async with at_once:
            return await Connection.open(host, command, deadline_s=READY_DEADLINE_S)

    commands = [ssh_command(host) for host in hosts]
    if here:
        commands[0] = runner_command()
    tasks = [asyncio.create_task(reach(*pair)) for pair in zip(hosts, commands, strict=True)]
    try:
        await asyncio.wait(tasks)
        reasons = [str(task.exception()) for task in tasks if task.exception()]
        if reasons:
            raise LaunchError(f"nothing started, {len(reasons)} of {len(hosts)} nodes: {'; '.join(reasons)}")
        return [task.result() for task in tasks]
    except BaseException:
        await _abandon(tasks)
        raise


async def _abandon(tasks: Sequence[asyncio.Task[Connection]]) -> None:
    for task in tasks:
        task.cancel()
    opened = await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(one.kill() for one in opened if isinstance(one, Connection)))


def peer_addresses(connections: Sequence[Connection], *, here: bool) -> tuple[str, ...]:
    """Each node's address as the others can reach it."""
    seen = [one.address for one in connections]
    if here:
        # There sshd took another connection: the user's, if any.
        seen[0] = None
    names = [one.host.name for one in connections]
    addresses = tuple(address_for_peers(*pair) for pair in zip(names, seen, strict=True))
    check_reachable(names, addresses)
    return addresses
