"""Run one attempt at a job to its last process, on nodes that have answered.

All nodes have the requested files before anything starts. The first failing process, a lost or preempted node or a
signal ends the processes everywhere; the attempt is over when every runner has ended.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from bootstrap.contract import ENGINES, PYTORCH_PYTHON, WORKER_HOST_PREFIX
from launcher.errors import UsageError
from launcher.frameworks import FRAMEWORKS, LAUNCHED_BY_MPI, Framework, JobTopology
from launcher.frameworks.horovod_store import RendezvousStore, serve
from launcher.hosts.addresses import own_address_towards
from launcher.job.connect import close_connections, peer_addresses
from launcher.job.framework_check import check_framework
from launcher.job.gpus import check_gpus, gpus_of
from launcher.job.missing_cwd import MissingCwd
from launcher.job.node import Failure, Node, set_first_failure
from launcher.job.preemption import watch_for_preemption
from launcher.output.prefixes import Sink, Streams
from launcher.spec import Job, NodeSpec
from launcher.transport.connection import Connection
from launcher.transport.pool.pool import ConnectionPool
from launcher.transport.protocol import AFTER_GRACE_S, FrameType

LINGER_S = 5.0
"""How long parameter servers, which end by themselves, may outlive their workers before they are stopped."""
READER_CHECK_S = 1.0

OUTPUT_LOST = 128 + signal.SIGPIPE
"""Exit code of a job whose output nobody reads any more."""


class Observer(Protocol):
    """Follow a job to keep its record (launcher.history.journal)."""

    def synced(self, digest: str) -> None:
        """Note that the nodes have the files with this digest."""

    def running(self, logs: Mapping[str, Sequence[str]], *, restart: int) -> None:
        """Note that the processes start, for the `restart`-th time again; `logs` names each host's logs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """Identify an attempt at a job, and hold where it writes."""

    job_id: str
    restart: int
    """How often the job was restarted."""
    cwd: str
    streams: Streams
    observer: Observer


async def run_attempt(
    job: Job, connections: Sequence[Connection], attempt: Attempt, pool: ConnectionPool | None = None
) -> Failure | None:
    """Run `job` to its end; return None if every process ended with 0. Cancelling it ends the processes.

    A successful job's connections go to `pool`.
    """
    framework = FRAMEWORKS[job.framework]
    try:
        await check_framework(job, connections)
        check_first_host(job, connections)
        if not (job.force or attempt.restart):
            check_gpus(job, [one.gpus for one in connections])
        addresses = peer_addresses(connections)
        cwd = await bring_files(job, connections, addresses, attempt)
        async with rendezvous(framework, job, towards=addresses[0]) as place:
            topology = JobTopology(
                job_id=attempt.job_id,
                addresses=addresses,
                port=connections[0].free_port,
                rendezvous=place,
                restart=attempt.restart,
                max_restarts=job.restarts.most,
            )
            keep = [pool is not None and not one.is_here for one in connections]
            specs = node_specs(framework, job, topology, cwd=cwd, keep=keep)
            attempt.observer.running(
                {
                    str(one.host): [process.log for process in spec.processes]
                    for one, spec in zip(connections, specs, strict=True)
                },
                restart=attempt.restart,
            )
            missing_cwd = MissingCwd(job.hosts, wanted=cwd, notes=attempt.streams[FrameType.STDERR])
            pairs = zip(connections, specs, strict=True)
            nodes = [Node(*pair, attempt.streams, missing_cwd, shown=job.shown) for pair in pairs]
            failure: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
            watches = (
                watch_reader(attempt.streams[FrameType.STDOUT], failure),
                watch_for_preemption(job.hosts, failure),
            )
            outcome = await supervise(nodes, failure, watches, grace_s=job.grace_s)
        outcome = outcome or output_lost(attempt.streams[FrameType.STDOUT])
        if outcome is None and pool is not None:
            pool.store(connections)
        await close_connections(connections)
        return outcome
    except BaseException:  # a signal too
        await close_connections(connections)
        raise


def check_first_host(job: Job, connections: Sequence[Connection]) -> None:
    """Raise UsageError if mpirun would run on a node that has no key for the others."""
    first = connections[0]
    is_elsewhere = first.host.name.startswith(WORKER_HOST_PREFIX) and not first.is_here
    if job.framework == LAUNCHED_BY_MPI and len(connections) > 1 and is_elsewhere:
        raise UsageError(
            f"--launcher mpi needs this machine as the first host, as only the master has the cluster's key, "
            f"got {first.host}"
        )


async def bring_files(job: Job, connections: Sequence[Connection], addresses: Sequence[str], attempt: Attempt) -> str:
    """Bring the job's files to every node; return the directory that its processes start in."""
    if job.sync is None:
        return attempt.cwd
    # Import only now: most jobs bring no files.
    from launcher.sync.sender import sync

    notes = attempt.streams[FrameType.STDERR]
    digest = await sync(
        connections, addresses, job.sync, source=Path(attempt.cwd), here=connections[0].is_here, notes=notes
    )
    if digest is not None:
        attempt.observer.synced(digest)
    return job.sync.directory or attempt.cwd


@asynccontextmanager
async def rendezvous(framework: Framework, job: Job, *, towards: str) -> AsyncIterator[tuple[str, int] | None]:
    """Serve the processes' rendezvous store until the job is over, if the framework uses one."""
    if framework.scopes is None:
        yield None
        return
    address = own_address_towards(towards)
    async with await serve(RendezvousStore(framework.scopes(job)), address=address) as server:
        yield address, int(server.sockets[0].getsockname()[1])


def node_specs(
    framework: Framework, job: Job, topology: JobTopology, *, cwd: str, keep: Sequence[bool]
) -> list[NodeSpec]:
    """Return what each node has to run."""
    first, other = topology.addresses[0], topology.addresses[min(1, len(topology.addresses) - 1)]
    return [
        NodeSpec(
            job_id=topology.job_id,
            host=str(job.hosts[node_rank]),
            processes=processes,
            environment=dict(job.environment),
            defaults=dict(framework.shared_defaults) if len(processes) > 1 else {},
            interface_variables=framework.interface_variables,
            bins=bins(framework),
            peer=first if node_rank else other,
            cwd=cwd,
            grace_s=job.grace_s,
            gpus=None if (gpus := gpus_of(job, job.hosts[node_rank])) is None else list(gpus),
            keep=keep[node_rank],
        )
        for node_rank, processes in enumerate(framework.plan(job, topology))
    ]


def bins(framework: Framework) -> list[str]:
    """Return the directories in which a command that only says python finds it."""
    return [*([f"{ENGINES}/bin"] if framework.required_engine is not None else []), str(Path(PYTORCH_PYTHON).parent)]


async def supervise(
    nodes: Sequence[Node],
    failure: "asyncio.Future[Failure]",
    watches: Sequence[Coroutine[Any, Any, None]],
    *,
    grace_s: float,
) -> Failure | None:
    """Start the processes, wait for the end or the first failure, and end what still runs."""
    follows = [asyncio.create_task(node.follow(failure)) for node in nodes]
    everything = asyncio.create_task(asyncio.wait(follows))
    decided = asyncio.create_task(_until_decided(nodes))
    watching = [asyncio.create_task(watch) for watch in watches]
    first: set[asyncio.Future[Any]] = {failure, everything, decided}
    try:
        await asyncio.gather(*(node.start(failure) for node in nodes))
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        # Once the processes that the job waits for have ended, no other end is a failure.
        outcome = failure.result() if failure.done() else None
        if outcome is None:
            await asyncio.wait({everything}, timeout=LINGER_S)
    finally:
        for task in (*watching, decided):
            task.cancel()
        await end(nodes, follows, deadline_s=grace_s + AFTER_GRACE_S)
    return unless_crashed(outcome, nodes)


def unless_crashed(outcome: Failure | None, nodes: Sequence[Node]) -> Failure | None:
    """Correct `outcome` by what the preempted node has done since.

    A node with notice lives, and reports how its processes end. A crashed one is silent, which may be the job's
    own fault.
    """
    crashed = [node.connection.host for node in nodes if node.is_lost]
    return replace(outcome, preempted=False) if outcome is not None and outcome.preempted_host in crashed else outcome


async def _until_decided(nodes: Sequence[Node]) -> None:
    for node in nodes:
        await node.decided.wait()


async def watch_reader(stdout: Sink, failure: "asyncio.Future[Failure]") -> None:
    """Fail the job when its reader is gone, also while the job is silent."""
    while not stdout.reader_has_gone():
        await asyncio.sleep(READER_CHECK_S)
    if lost := output_lost(stdout):
        set_first_failure(failure, lost)


def output_lost(stdout: Sink) -> Failure | None:
    """Return the failure of a job whose output could not all be written; else None."""
    if stdout.lost is None:
        return None
    return Failure(exit_code=OUTPUT_LOST, reason=f"cannot write the output any more: {stdout.lost}", final=True)


async def end(nodes: Sequence[Node], follows: Sequence["asyncio.Task[None]"], *, deadline_s: float) -> None:
    """Tell every runner to end its processes; cut the connection of one that takes too long."""
    for node in nodes:
        if not node.connection.is_idle:
            node.stop()
    _, late = await asyncio.wait(follows, timeout=deadline_s)
    for task in late:
        task.cancel()
    for task in late:
        with suppress(asyncio.CancelledError):
            await task
    await close_connections([node.connection for node in nodes if not node.connection.is_idle])
