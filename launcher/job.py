"""One job from its first connection to its last process.

All nodes are reached before anything starts. The first failing rank, a lost node or a signal
ends the ranks everywhere; the job is over when every runner is.
"""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from launcher.addresses import address_for_peers, address_of, check_reachable, is_here
from launcher.channel import Channel
from launcher.connection import Connection
from launcher.errors import LaunchError
from launcher.frames import Kind, NodeSpec
from launcher.hosts import Host
from launcher.options import Job
from launcher.output import RankOutput, Streams
from launcher.ranks import rank_plan
from launcher.ssh import runner_command, ssh_command

CONNECTIONS_AT_ONCE = 32
READY_DEADLINE_S = 30.0
GRACE_S = 10.0
END_DEADLINE_S = GRACE_S + 10.0
READER_CHECK_S = 1.0
LOST = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a job failed: its exit code, one line, and what the rank said last."""

    exit_code: int
    reason: str
    tail: tuple[bytes, ...] = ()


OUTPUT_CLOSED = Failure(exit_code=128 + signal.SIGPIPE, reason="nobody reads the output any more")


async def run_job(job: Job, *, cwd: str, streams: Streams) -> Failure | None:
    """Run `job` to its end; None when every rank ended with 0. Cancelling it ends the ranks."""
    here = job.local or is_this_machine(job.hosts[0])
    connections = await connect(job.hosts, here=here)
    try:
        addresses = peer_addresses(connections, here=here)
    except LaunchError:
        await asyncio.gather(*(connection.kill() for connection in connections))
        raise
    specs = node_specs(job, addresses=addresses, port=connections[0].free_port, cwd=cwd)
    nodes = [Node(connection, streams) for connection in connections]
    return await supervise(nodes, specs, stdout=streams[Kind.STDOUT])


def is_this_machine(host: Host) -> bool:
    """Whether `host` needs no ssh; a port may lead to a container or through a tunnel."""
    try:
        return host.port is None and is_here(address_of(host.name))
    except LaunchError:
        # An alias of ssh's configuration, or a name that ssh will complain of.
        return False


def peer_addresses(connections: Sequence[Connection], *, here: bool) -> list[str]:
    """Each node's address as the others can reach it."""
    seen = [one.address for one in connections]
    if here:
        # There sshd took another connection: the user's, if any.
        seen[0] = None
    names = [one.host.name for one in connections]
    addresses = [address_for_peers(*pair) for pair in zip(names, seen, strict=True)]
    check_reachable(names, addresses)
    return addresses


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


def node_specs(job: Job, *, addresses: Sequence[str], port: int, cwd: str) -> list[NodeSpec]:
    """What each node has to run."""
    first, other = addresses[0], addresses[min(1, len(addresses) - 1)]
    plan = rank_plan([host.slots for host in job.hosts], master_addr=first, master_port=port)
    return [
        NodeSpec(
            command=job.command,
            cwd=cwd,
            environment=dict(job.environment),
            ranks=ranks,
            peer=first if node_rank else other,
            grace_s=GRACE_S,
        )
        for node_rank, ranks in enumerate(plan)
    ]


class Node:
    """One node's part of a job."""

    def __init__(self, connection: Connection, streams: Streams) -> None:
        self.connection = connection
        self._streams = streams
        self._outputs: dict[int, RankOutput] = {}

    async def follow(self, spec: NodeSpec, failure: "asyncio.Future[Failure]") -> None:
        """Pass on output until the runner ends; tell of the first thing that goes wrong."""
        running = set(range(len(spec.ranks)))
        async for frame in self.connection.frames():
            output = self._output(frame.local_rank)
            if frame.kind in (Kind.STDOUT, Kind.STDERR):
                output.write(frame.kind, frame.payload)
            elif frame.kind is Kind.EXIT:
                running.discard(frame.local_rank)
                output.finish()
                code = int(frame.payload)
                if code:
                    _settle(failure, self._failed(spec.ranks[frame.local_rank]["RANK"], code, output))
        for output in self._outputs.values():
            output.finish()
        if running:
            reason = f"{self.connection.host}: lost: {await self.connection.complaint()}"
            _settle(failure, Failure(exit_code=LOST, reason=reason))

    def _output(self, local_rank: int) -> RankOutput:
        if local_rank not in self._outputs:
            prefix = f"{self.connection.host} [{local_rank}] "
            self._outputs[local_rank] = RankOutput(prefix, self._streams)
        return self._outputs[local_rank]

    def _failed(self, rank: str, code: int, output: RankOutput) -> Failure:
        reason = f"{self.connection.host}: rank {rank} ended with exit code {code}"
        return Failure(exit_code=code, reason=reason, tail=tuple(output.tail))


def _settle(failure: "asyncio.Future[Failure]", value: Failure) -> None:
    if not failure.done():
        failure.set_result(value)


async def _watch_reader(stdout: Channel, failure: "asyncio.Future[Failure]") -> None:
    """Notice a dropped session, also while the job is silent."""
    while not stdout.reader_has_gone():
        await asyncio.sleep(READER_CHECK_S)
    _settle(failure, OUTPUT_CLOSED)


async def supervise(nodes: Sequence[Node], specs: Sequence[NodeSpec], *, stdout: Channel) -> Failure | None:
    """Start the ranks, wait for the end or the first failure, and end what still runs."""
    failure: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
    follows = [asyncio.create_task(node.follow(spec, failure)) for node, spec in zip(nodes, specs, strict=True)]
    everything: asyncio.Future[Any] = asyncio.gather(*follows)
    waiting: set[asyncio.Future[Any]] = {failure, everything}
    watching = asyncio.create_task(_watch_reader(stdout, failure))
    try:
        await asyncio.gather(*(n.connection.start(s) for n, s in zip(nodes, specs, strict=True)))
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        await end(nodes, follows)
    if failure.done():
        return failure.result()
    everything.result()
    return None


async def end(nodes: Sequence[Node], follows: Sequence["asyncio.Task[None]"]) -> None:
    """Tell every runner to end its ranks; cut the connection of one that does not in time."""
    for node in nodes:
        node.connection.close()
    _, late = await asyncio.wait(follows, timeout=END_DEADLINE_S)
    for task in late:
        task.cancel()
    for task in late:
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.gather(*(node.connection.kill() for node in nodes))
