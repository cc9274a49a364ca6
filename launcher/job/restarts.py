"""A job's attempts: the first on the nodes that were asked for, each further one on those that are there.

The whole group is stopped and started again, over new connections and a new port; ranks follow the order of the
hosts, so that a replacement takes the place of the node that was lost. The job's name and its logs stay.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.errors import LaunchError, UnreachableError, UsageError
from launcher.hosts.hostfile import Host
from launcher.job.attempt import Attempt, Observer, run_attempt
from launcher.job.connect import READY_DEADLINE_S, connect, dismiss, reach
from launcher.job.framework_check import lacking_engine
from launcher.job.node import Failure
from launcher.job.spec import Job
from launcher.output.prefixes import Streams
from launcher.transport.connection import Connection
from launcher.transport.pool.pool import Reserve
from launcher.transport.protocol import Kind

PAUSE_S = 2.0
"""Between two looks for the nodes."""
LAST_LOOK_S = 10.0
"""What nodes get to answer, however late it is: as long as ssh takes for one that does not."""
SHORT_S = 300.0
"""An attempt that ended before counts in any case: a job that brings its machine down must not start for ever."""
MOST_NAMED = 8
"""Hosts in one line of ours."""


async def run_job(
    job: Job, *, job_id: str, cwd: str, streams: Streams, observer: Observer, reserve: Reserve | None = None
) -> Failure | None:
    """Run `job` until it succeeds, or fails for good. Cancelling it ends its processes."""
    attempt = Attempt(job_id=job_id, restart=0, cwd=cwd, streams=streams, observer=observer)
    failure, counted = await _first(job, attempt, reserve), 0
    while failure is not None and not failure.final and job.restarts.most:
        # A node that is taken away is no failure of the job's, and there are as many of these as the cloud likes.
        counted += not failure.reclaimed
        if counted > job.restarts.most:
            break
        attempt = replace(attempt, restart=attempt.restart + 1)
        which = "restart (not counted)" if failure.reclaimed else f"restart {counted} of {job.restarts.most}"
        failure = await _again(job, attempt, failure, which=which)
    return failure


def new_job_id() -> str:
    """A name that sorts by time and is no other job's."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(seconds))}-{nanoseconds // 10**6:03d}{os.urandom(2).hex()}"


async def _first(job: Job, attempt: Attempt, reserve: Reserve | None) -> Failure | None:
    try:
        connections = await connect(job.hosts, local=job.local, reserve=reserve)
    except UnreachableError as error:
        return Failure(exit_code=error.exit_code, reason=str(error), final=error.final)
    return await _run(job, connections, attempt, reserve)


async def _run(
    job: Job, connections: Sequence[Connection], attempt: Attempt, reserve: Reserve | None = None
) -> Failure | None:
    """As `run_attempt`; after a short attempt nobody's node counts as taken away."""
    clock = asyncio.get_running_loop().time
    began = clock()
    failure = await run_attempt(job, connections, attempt, reserve)
    if failure is not None and clock() - began < SHORT_S:
        return replace(failure, reclaimed=False)
    return failure


async def _again(job: Job, attempt: Attempt, failure: Failure, *, which: str) -> Failure | None:
    """Start `job` after `failure` on as many of its nodes as are there in time."""
    stderr = attempt.streams[Kind.STDERR]
    waiting = f"waiting at most {job.restarts.rejoin_s:g} s for {count_nodes(len(job.hosts))} to answer"
    await stderr.send(_line(f"{failure.reason.rstrip('.')}; {waiting}, then starting again"))
    muster = await gather_nodes(job, attempt.streams)
    nodes = muster.connections
    if len(nodes) < job.restarts.min_nodes:
        await dismiss(nodes)
        lacking = f"not restarted on {len(nodes)} of at least {count_nodes(job.restarts.min_nodes)}"
        reason = "; ".join([failure.reason, lacking, *muster.reasons])
        return replace(failure, reason=reason, final=True)
    hosts = tuple(connection.host for connection in nodes)
    await stderr.send(_line(f"{which} on {describe(hosts, asked=job.hosts)}"))
    try:
        return await _run(job.on(hosts), nodes, attempt)
    except UsageError:
        raise
    except LaunchError as error:
        # A node that was lost while it got its files, say: the next restart may do better.
        return replace(failure, reason=str(error), reclaimed=False)


def describe(hosts: Sequence[Host], *, asked: Sequence[Host]) -> str:
    """How many nodes, and which: those that are missing, when there are too many to name them all."""
    count = f"{len(hosts)} of {count_nodes(len(asked))}" if len(hosts) < len(asked) else count_nodes(len(asked))
    if len(hosts) <= MOST_NAMED:
        return f"{count}: {', '.join(map(str, hosts))}"
    there = {str(host) for host in hosts}
    missing = [str(host) for host in asked if str(host) not in there]
    return f"{count}, without {', '.join(missing[:MOST_NAMED])}" if missing else count


def count_nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


@dataclass(kw_only=True, slots=True)
class Muster:
    """Who answered, in the order of the hosts file, and why others did not."""

    connections: list[Connection]
    reasons: list[str]


async def gather_nodes(job: Job, streams: Streams) -> Muster:
    """The first of the hosts that are there: as many as were asked for, or fewer when time is up."""
    clock = asyncio.get_running_loop().time
    until = clock() + job.restarts.rejoin_s
    while True:
        left = until - clock()
        hosts, reasons = _listed(job)
        # The cluster's own file says who is there: until all are, nobody needs to be asked.
        asked = bool(hosts) and (len(hosts) >= len(job.hosts) or left <= 0)
        muster = Muster(connections=[], reasons=reasons)
        if asked:
            deadline_s = min(READY_DEADLINE_S, max(left, LAST_LOOK_S))
            muster = await _reach_first(hosts, len(job.hosts), local=job.local, deadline_s=deadline_s)
            await _leave_out_unequipped(job, muster)
        complete = len(muster.connections) >= len(job.hosts)
        if complete or left <= 0 or (asked and clock() >= until) or streams[Kind.STDOUT].reader_has_gone():
            return muster
        await dismiss(muster.connections)
        await asyncio.sleep(min(PAUSE_S, max(0.0, until - clock())))


async def _leave_out_unequipped(job: Job, muster: Muster) -> None:
    """A replacement is in the lists before it has its engines."""
    takes, lacking = await lacking_engine(job, muster.connections)
    muster.reasons += [f"{connection.host}: no {takes} yet" for connection in lacking]
    muster.connections = [connection for connection in muster.connections if connection not in lacking]
    await dismiss(lacking)


def _listed(job: Job) -> tuple[tuple[Host, ...], list[str]]:
    """The hosts that the job may use now; none, and why, while they cannot be read."""
    if job.roster is None:
        return job.hosts, []
    try:
        return job.roster.read(), []
    except UsageError as error:
        return (), [str(error)]


async def _reach_first(hosts: Sequence[Host], count: int, *, local: bool, deadline_s: float) -> Muster:
    """Runners on the first `count` hosts that answer: for one that does not, the next is asked."""
    muster, rest = Muster(connections=[], reasons=[]), tuple(hosts)
    try:
        while rest and (lacking := count - len(muster.connections)) > 0:
            batch, rest = rest[:lacking], rest[lacking:]
            found, errors = await reach(batch, local=local, deadline_s=deadline_s)
            muster.connections += found
            muster.reasons += map(str, errors)
    except BaseException:  # a signal too
        await dismiss(muster.connections)
        raise
    return muster


def _line(text: str) -> bytes:
    return f"launch: {text}\n".encode(errors="surrogateescape")
