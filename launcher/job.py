"""One job from its first connection to its last process.

All nodes are reached before anything starts. The first failing process, a lost node or a signal
ends the processes everywhere; the job is over when every runner is.
"""

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from launcher.addresses import own_address_towards
from launcher.channel import Channel
from launcher.engines import ENGINES, Engine, Site
from launcher.frames import Kind
from launcher.node import Failure, Node, settle
from launcher.nodes import connect, is_this_machine, peer_addresses
from launcher.output import Streams
from launcher.rendezvous import RendezvousStore, serve
from launcher.spec import Job, NodeSpec

GRACE_S = 10.0
END_DEADLINE_S = GRACE_S + 10.0
LINGER_S = 5.0
"""How long parameter servers, which end by themselves, may outlive their workers before they are stopped."""
READER_CHECK_S = 1.0

OUTPUT_LOST = 128 + signal.SIGPIPE
"""Exit code of a job whose output nobody takes any more."""


async def run_job(job: Job, *, cwd: str, streams: Streams) -> Failure | None:
    """Run `job` to its end; None when every process ended with 0. Cancelling it ends the processes."""
    engine = ENGINES[job.engine]
    here = job.local or is_this_machine(job.hosts[0])
    connections = await connect(job.hosts, here=here)
    try:
        addresses = peer_addresses(connections, here=here)
        async with rendezvous(engine, job, towards=addresses[0]) as place:
            site = Site(job_id=new_job_id(), addresses=addresses, port=connections[0].free_port, rendezvous=place)
            specs = node_specs(engine, job, site, cwd=cwd)
            nodes = [Node(*pair, streams) for pair in zip(connections, specs, strict=True)]
            return await supervise(nodes, stdout=streams[Kind.STDOUT])
    except BaseException:  # a signal too
        await asyncio.gather(*(connection.kill() for connection in connections))
        raise


def new_job_id() -> str:
    """A name that sorts by time and is no other job's."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


@asynccontextmanager
async def rendezvous(engine: Engine, job: Job, *, towards: str) -> AsyncIterator[tuple[str, int] | None]:
    """Where the processes meet, if they meet at a store of ours; it is there until the job is over."""
    if engine.scopes is None:
        yield None
        return
    address = own_address_towards(towards)
    async with await serve(RendezvousStore(engine.scopes(job)), address=address) as server:
        yield address, int(server.sockets[0].getsockname()[1])


def node_specs(engine: Engine, job: Job, site: Site, *, cwd: str) -> list[NodeSpec]:
    """What each node has to run."""
    first, other = site.addresses[0], site.addresses[min(1, len(site.addresses) - 1)]
    return [
        NodeSpec(
            job_id=site.job_id,
            processes=processes,
            environment=dict(job.environment),
            defaults=dict(engine.shared_defaults) if len(processes) > 1 else {},
            interface_variables=engine.interface_variables,
            peer=first if node_rank else other,
            cwd=cwd,
            grace_s=GRACE_S,
        )
        for node_rank, processes in enumerate(engine.plan(job, site))
    ]


async def supervise(nodes: Sequence[Node], *, stdout: Channel) -> Failure | None:
    """Start the processes, wait for the end or the first failure, and end what still runs."""
    failure: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
    follows = [asyncio.create_task(node.follow(failure)) for node in nodes]
    everything = asyncio.create_task(asyncio.wait(follows))
    decided = asyncio.create_task(_until_decided(nodes))
    watching = asyncio.create_task(_watch_reader(stdout, failure))
    first: set[asyncio.Future[Any]] = {failure, everything, decided}
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        # What ends, or is ended, after the processes that the job waits for is no failure any more.
        outcome = failure.result() if failure.done() else None
        if outcome is None:
            await asyncio.wait({everything}, timeout=LINGER_S)
    finally:
        watching.cancel()
        decided.cancel()
        await end(nodes, follows)
    return outcome


async def _until_decided(nodes: Sequence[Node]) -> None:
    for node in nodes:
        await node.decided.wait()


async def _watch_reader(stdout: Channel, failure: "asyncio.Future[Failure]") -> None:
    """Notice a dropped session, also while the job is silent."""
    while not stdout.reader_has_gone():
        await asyncio.sleep(READER_CHECK_S)
    settle(failure, Failure(exit_code=OUTPUT_LOST, reason=f"cannot write the output any more: {stdout.lost}"))


async def end(nodes: Sequence[Node], follows: Sequence["asyncio.Task[None]"]) -> None:
    """Tell every runner to end its processes; cut the connection of one that does not in time."""
    for node in nodes:
        node.connection.close()
    _, late = await asyncio.wait(follows, timeout=END_DEADLINE_S)
    for task in late:
        task.cancel()
    for task in late:
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.gather(*(node.connection.kill() for node in nodes))
