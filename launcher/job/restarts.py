"""Run a job's attempts: the first on the requested nodes, each restart on those that are there.

The whole group is stopped and restarted, over new connections and a new port. Ranks follow the order of the hosts,
so that a replacement takes the place of the node that was lost. The job's name and its logs stay.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.errors import LaunchError, UnreachableError, UsageError
from launcher.hosts.hostfile import Host
from launcher.job.attempt import Attempt, Observer, run_attempt
from launcher.job.connect import READY_DEADLINE_S, close_connections, connect, reach
from launcher.job.framework_check import nodes_lacking_framework
from launcher.job.node import Failure
from launcher.output.prefixes import Streams
from launcher.spec import Job
from launcher.transport.connection import Connection
from launcher.transport.pool.pool import ConnectionPool
from launcher.transport.protocol import FrameType
from launcher.transport.ssh import CONNECT_TIMEOUT_S

PAUSE_S = 2.0
"""Pause between two looks for the nodes."""
LAST_LOOK_S = float(CONNECT_TIMEOUT_S)
"""Deadline for the last look, however late: as long as ssh takes for a host that does not answer."""
SHORT_S = 300.0
"""A shorter attempt always counts against --max-restarts: a job that crashes its machine must not restart for ever."""
MOST_NAMED = 8
"""Most hosts named in one line."""


async def run_job(
    job: Job, *, job_id: str, cwd: str, streams: Streams, observer: Observer, pool: ConnectionPool | None = None
) -> Failure | None:
    """Run `job` until it succeeds, or fails for good. Cancelling it ends its processes."""
    attempt = Attempt(job_id=job_id, restart=0, cwd=cwd, streams=streams, observer=observer)
    failure, counted = await _first(job, attempt, pool), 0
    while failure is not None and not failure.final and job.restarts.most:
        # A preempted node is not the job's failure, and the cloud may take any number of nodes.
        counted += not failure.preempted
        if counted > job.restarts.most:
            break
        attempt = replace(attempt, restart=attempt.restart + 1)
        which = "restart (not counted)" if failure.preempted else f"restart {counted} of {job.restarts.most}"
        failure = await _again(job, attempt, failure, which=which)
    return failure


def new_job_id() -> str:
    """Return a unique name that sorts by time."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(seconds))}-{nanoseconds // 10**6:03d}{os.urandom(2).hex()}"


async def _first(job: Job, attempt: Attempt, pool: ConnectionPool | None) -> Failure | None:
    try:
        connections = await connect(job.hosts, local=job.local, pool=pool)
    except UnreachableError as error:
        return Failure(exit_code=error.exit_code, reason=str(error), final=error.final)
    return await _run(job, connections, attempt, pool)


async def _run(
    job: Job, connections: Sequence[Connection], attempt: Attempt, pool: ConnectionPool | None = None
) -> Failure | None:
    """Run an attempt; after a short one no node counts as preempted."""
    clock = asyncio.get_running_loop().time
    began = clock()
    failure = await run_attempt(job, connections, attempt, pool)
    if failure is not None and clock() - began < SHORT_S:
        return replace(failure, preempted=False)
    return failure


async def _again(job: Job, attempt: Attempt, failure: Failure, *, which: str) -> Failure | None:
    """Restart `job` after `failure` on as many of its nodes as are there in time."""
    stderr = attempt.streams[FrameType.STDERR]
    waiting = f"waiting at most {job.restarts.rejoin_s:g} s for {count_nodes(len(job.hosts))} to answer"
    await stderr.send(_line(f"{failure.reason.rstrip('.')}; {waiting}, then starting again"))
    reachable = await gather_nodes(job, attempt.streams)
    nodes = reachable.connections
    if len(nodes) < job.restarts.min_nodes:
        await close_connections(nodes)
        lacking = f"not restarted on {len(nodes)} of at least {count_nodes(job.restarts.min_nodes)}"
        reason = "; ".join([failure.reason, lacking, *reachable.reasons])
        return replace(failure, reason=reason, final=True)
    hosts = tuple(connection.host for connection in nodes)
    await stderr.send(_line(f"{which} on {describe(hosts, asked=job.hosts)}"))
    try:
        return await _run(job.with_hosts(hosts), nodes, attempt)
    except UsageError:
        raise
    except LaunchError as error:
        # A node was lost while it received its files, for example: the next restart may succeed.
        return replace(failure, reason=str(error), preempted=False)


def describe(hosts: Sequence[Host], *, asked: Sequence[Host]) -> str:
    """Describe how many nodes there are, and name them, or the missing ones if there are many."""
    count = f"{len(hosts)} of {count_nodes(len(asked))}" if len(hosts) < len(asked) else count_nodes(len(asked))
    if len(hosts) <= MOST_NAMED:
        return f"{count}: {', '.join(map(str, hosts))}"
    there = {str(host) for host in hosts}
    missing = [str(host) for host in asked if str(host) not in there]
    return f"{count}, without {', '.join(missing[:MOST_NAMED])}" if missing else count


def count_nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


@dataclass(kw_only=True, slots=True)
class ReachableNodes:
    """Hold the runners that answered, in the order of the hosts file, and why others did not."""

    connections: list[Connection]
    reasons: list[str]


async def gather_nodes(job: Job, streams: Streams) -> ReachableNodes:
    """Connect to the first hosts that are there: as many as requested, or fewer when time is up."""
    clock = asyncio.get_running_loop().time
    until = clock() + job.restarts.rejoin_s
    while True:
        left = until - clock()
        hosts, reasons = _listed(job)
        # The cluster's own file says who is there: there is no need to ask anyone until all are.
        asked = bool(hosts) and (len(hosts) >= len(job.hosts) or left <= 0)
        reachable = ReachableNodes(connections=[], reasons=reasons)
        if asked:
            deadline_s = min(READY_DEADLINE_S, max(left, LAST_LOOK_S))
            reachable = await _reach_first(hosts, len(job.hosts), local=job.local, deadline_s=deadline_s)
            await _leave_out_unequipped(job, reachable)
        complete = len(reachable.connections) >= len(job.hosts)
        if complete or left <= 0 or (asked and clock() >= until) or streams[FrameType.STDOUT].reader_has_gone():
            return reachable
        await close_connections(reachable.connections)
        await asyncio.sleep(min(PAUSE_S, max(0.0, until - clock())))


async def _leave_out_unequipped(job: Job, reachable: ReachableNodes) -> None:
    """Leave out replacements that are listed but do not have their frameworks yet."""
    engine, lacking = await nodes_lacking_framework(job, reachable.connections)
    reachable.reasons += [f"{connection.host}: no {engine} yet" for connection in lacking]
    reachable.connections = [connection for connection in reachable.connections if connection not in lacking]
    await close_connections(lacking)


def _listed(job: Job) -> tuple[tuple[Host, ...], list[str]]:
    """Return the hosts that the job may use now; none, and why, while the file cannot be read."""
    if job.host_source is None:
        return job.hosts, []
    try:
        return job.host_source.read(), []
    except UsageError as error:
        return (), [str(error)]


async def _reach_first(hosts: Sequence[Host], count: int, *, local: bool, deadline_s: float) -> ReachableNodes:
    """Connect to the first `count` hosts that answer: for one that does not, ask the next."""
    reachable, rest = ReachableNodes(connections=[], reasons=[]), tuple(hosts)
    try:
        while rest and (lacking := count - len(reachable.connections)) > 0:
            batch, rest = rest[:lacking], rest[lacking:]
            found, errors = await reach(batch, local=local, deadline_s=deadline_s)
            reachable.connections += found
            reachable.reasons += map(str, errors)
    except BaseException:  # a signal too
        await close_connections(reachable.connections)
        raise
    return reachable


def _line(text: str) -> bytes:
    return f"launch: {text}\n".encode(errors="surrogateescape")
