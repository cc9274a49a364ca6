"""Run a job and restart it after failures: connect to its nodes, check them, start the ranks, and wait for the end.

No rank starts until all nodes have the synced files. A failed process, a lost or preempted node, or a signal ends the
processes on all nodes; the run is over once every runner has ended. A durable job's attempt
(launcher.durable.attempt) is one launcher's call of `run_with_restarts`, with all its restarts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from bootstrap.contract import MXNET_ENVIRONMENT_LINK, PYTORCH_PYTHON
from launcher.errors import BusyError, LaunchError, UnreachableError, UsageError
from launcher.frameworks import Framework, JobTopology, load_framework
from launcher.job.checks import check_nodes, read_secrets_on_nodes
from launcher.job.connect import close_connections, connect_all, peer_addresses
from launcher.job.failure import Failure, FailureCause, cause_after_run
from launcher.job.gpu_check import select_gpus
from launcher.job.missing_cwd import MissingCwd
from launcher.job.node_loss import read_instance_ids, wait_for_node_loss
from launcher.job.restarts import NotRestartedError, RestartHostAllocator, connect_for_restart
from launcher.job.supervision import NodeRun, output_failure, supervise_nodes
from launcher.output.sink import Streams
from launcher.spec import JobSpec, NodeSpec
from launcher.transport.connection import RunnerConnection
from launcher.transport.pool.pool import ConnectionPool
from launcher.transport.protocol import FrameType


class JobObserver(Protocol):
    """Receiver of a job's events, which maintains its record (launcher.job_records.recorder)."""

    def on_synced(self, digest: str) -> None:
        """Handle the end of a sync; `digest` identifies the synced files."""

    def on_running(
        self, logs: Mapping[str, Sequence[str]], *, restart_count: int, gpus: Mapping[str, Sequence[str] | None]
    ) -> None:
        """Handle the start of the processes after `restart_count` restarts, with each host's logs and GPUs."""

    def on_restart(self) -> None:
        """Handle the end of the processes, before the search for nodes for a restart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobContext:
    """Everything that all runs of a job share: its identity, its outputs, and its connections."""

    job_id: str
    cwd: str
    streams: Streams
    observer: JobObserver
    restart_host_allocator: RestartHostAllocator | None = None
    """Allocates the hosts of a restart; None: the first that answer."""
    pool: ConnectionPool | None = None
    """Keeps the connections of a successful job; None: they are closed."""
    has_waited: bool = False
    """True if the job has waited in the queue, to which it returns if a node does not answer."""


async def run_with_restarts(job: JobSpec, context: JobContext) -> Failure | None:
    """Run `job` until it succeeds or no restart is left. Cancelling ends its processes.

    Raises BusyError, before anything has started, if its nodes are in use; after a wait in the queue, also if a node
    does not answer.
    """
    max_restarts = job.restart_policy.max_restarts
    # A preemption adds to the total, but uses up none of --max-restarts.
    total_restarts = restarts_used = 0
    failure = await run_first_time(job, context)
    while failure is not None and may_restart(failure, restarts_used, max_restarts=max_restarts):
        total_restarts += 1
        if failure.cause is FailureCause.PREEMPTION:
            label = "restart (not counted)"
        else:
            restarts_used += 1
            label = f"restart {restarts_used} of {max_restarts}"
        failure = await restart_job(job, context, failure, restart_count=total_restarts, label=label)
    # A durable job gets another attempt if a node was lost, so find out whether one was.
    if failure is not None and job.durable:
        return await wait_for_node_loss(failure, context.streams[FrameType.STDERR])
    return failure


def may_restart(failure: Failure, restarts_used: int, *, max_restarts: int) -> bool:
    """Return True if the job restarts after this failure, having used up `restarts_used` of its restarts.

    A preemption is not the job's fault, so its restart does not use up --max-restarts.
    """
    if failure.permanent or max_restarts == 0:
        return False
    return failure.cause is FailureCause.PREEMPTION or restarts_used < max_restarts


async def run_first_time(job: JobSpec, context: JobContext) -> Failure | None:
    """Make the first run of `job`, on the requested nodes; all of them must answer."""
    try:
        connections = await connect_all(job.hosts, is_local=job.is_local, pool=context.pool)
    except UnreachableError as error:
        if context.has_waited and not error.permanent:
            raise BusyError(str(error), detail=str(error)) from error
        return Failure(exit_code=error.exit_code, reason=str(error), permanent=error.permanent)
    return await run_once(job, connections, context, restart_count=0)


async def restart_job(
    job: JobSpec, context: JobContext, failure: Failure, *, restart_count: int, label: str
) -> Failure | None:
    """Make another run of `job` after `failure`, on the nodes that answer in time."""
    context.observer.on_restart()
    try:
        connections = await connect_for_restart(
            job, context.streams, failure, label=label, restart_host_allocator=context.restart_host_allocator
        )
    except NotRestartedError as error:
        return error.failure
    try:
        job = job.with_hosts(tuple(connection.host for connection in connections))
        return await run_once(job, connections, context, restart_count=restart_count)
    except UsageError:
        raise
    except LaunchError as error:
        # For example, a node was lost while it received files; the next restart may succeed.
        return replace(failure, reason=str(error), failed_rank=None, cause=FailureCause.OTHER)


async def run_once(
    job: JobSpec, connections: Sequence[RunnerConnection], context: JobContext, *, restart_count: int
) -> Failure | None:
    """Run `job` once on connected nodes; return None if every process exited with 0. Cancelling ends the processes.

    The pool keeps the connections of a successful first run.
    """
    # Connections of a restart were not opened through the pool.
    pool = context.pool if restart_count == 0 else None
    clock = asyncio.get_running_loop().time
    began = clock()
    instances = read_instance_ids(job.hosts) if job.durable else {}
    stdout = context.streams[FrameType.STDOUT]
    try:
        async with AsyncExitStack() as stack:
            nodes = await prepare_nodes(
                job, connections, context, stack, restart_count=restart_count, keep_runners=pool is not None
            )
            failure = await supervise_nodes(nodes, job.hosts, stdout, grace_s=job.grace_s)
        failure = failure or output_failure(stdout)
        if failure is None and pool is not None:
            pool.keep(connections)
    finally:  # even after a signal
        await close_connections(connections)
    if failure is None:
        return None
    silent_hosts = [node.connection.host for node in nodes if node.is_silent_after_stop]
    cause = cause_after_run(failure, silent_hosts=silent_hosts, run_s=clock() - began)
    return replace(failure, cause=cause, instances=instances)


async def prepare_nodes(
    job: JobSpec,
    connections: Sequence[RunnerConnection],
    context: JobContext,
    stack: AsyncExitStack,
    *,
    restart_count: int,
    keep_runners: bool,
) -> list[NodeRun]:
    """Check the nodes, sync their files, and plan the ranks that each will start.

    The framework's rendezvous store, if it has one, serves until `stack` is closed. If `keep_runners`, the runners of a
    successful job wait for the next launch.
    """
    framework = load_framework(job.framework)
    await check_nodes(job, connections, is_restart=restart_count > 0)
    await read_secrets_on_nodes(job, connections)
    addresses = peer_addresses(connections)
    cwd = await sync_files(job, connections, addresses, context, is_restart=restart_count > 0)
    serve = framework.serve_rendezvous
    topology = JobTopology(
        job_id=context.job_id,
        addresses=addresses,
        port=connections[0].free_port,
        rendezvous_endpoint=None if serve is None else await stack.enter_async_context(serve(job, addresses[0])),
        restart_count=restart_count,
        max_restarts=job.restart_policy.max_restarts,
    )
    kept_runners = [keep_runners and not connection.is_local for connection in connections]
    specs = node_specs(framework, job, topology, cwd=cwd, kept_runners=kept_runners)
    context.observer.on_running(
        {spec.host: [process.log for process in spec.processes] for spec in specs},
        restart_count=restart_count,
        gpus={spec.host: spec.gpus for spec in specs},
    )
    missing_cwd = MissingCwd(job.hosts, cwd=cwd, stderr=context.streams[FrameType.STDERR])
    return [
        NodeRun(connection, spec, context.streams, missing_cwd, shown_local_ranks=job.shown_local_ranks)
        for connection, spec in zip(connections, specs, strict=True)
    ]


async def sync_files(
    job: JobSpec,
    connections: Sequence[RunnerConnection],
    addresses: Sequence[str],
    context: JobContext,
    *,
    is_restart: bool,
) -> str:
    """Sync the job's files to every node; return the working directory of its processes."""
    if job.sync is None:
        return context.cwd
    # Imported late: most jobs sync no files.
    from launcher.sync.sender import sync

    stderr = context.streams[FrameType.STDERR]
    digest = await sync(
        connections,
        addresses,
        job.sync,
        source=Path(context.cwd),
        first_is_local=connections[0].is_local,
        is_restart=is_restart,
        stderr=stderr,
    )
    if digest is not None:
        context.observer.on_synced(digest)
    return job.sync.directory or context.cwd


def node_specs(
    framework: Framework, job: JobSpec, topology: JobTopology, *, cwd: str, kept_runners: Sequence[bool]
) -> list[NodeSpec]:
    """Return each node's spec: the framework's processes, with the job's variables and GPUs.

    `kept_runners` says for each node whether its runner waits for the next launch after a successful job.
    """
    # Each node routes to a peer: rank 0's node to the second, all others to the first.
    first, other = topology.addresses[0], topology.addresses[min(1, len(topology.addresses) - 1)]
    return [
        NodeSpec(
            job_id=topology.job_id,
            host=str(job.hosts[node_rank]),
            processes=processes,
            environment=({"VIRTUAL_ENV": job.venv} if job.venv else {}) | dict(job.environment),
            defaults=dict(framework.shared_defaults) if len(processes) > 1 else {},
            interface_variables=framework.interface_variables,
            path_prefix=path_prefix(framework, venv=job.venv),
            peer=first if node_rank else other,
            cwd=cwd,
            grace_s=job.grace_s,
            gpus=None if (gpus := select_gpus(job, job.hosts[node_rank])) is None else list(gpus),
            keep_runner=kept_runners[node_rank],
        )
        for node_rank, processes in enumerate(framework.plan(job, topology))
    ]


def path_prefix(framework: Framework, *, venv: str | None = None) -> list[str]:
    """Return the directories to put first on PATH, so that ``python`` in a command is the framework's."""
    frameworks = [f"{MXNET_ENVIRONMENT_LINK}/bin"] if framework.is_in_mxnet_environment else []
    return [*([f"{venv}/bin"] if venv else []), *frameworks, str(Path(PYTORCH_PYTHON).parent)]
