"""Find the nodes for a restart: the requested hosts, or those that answer in time.

The whole group stops and restarts over new connections and with a new port. Ranks follow the order of the hosts, so a
replacement takes the lost node's index. The job keeps its id and its logs.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from bootstrap.contract import ARRIVING_NODES_FILE
from launcher.errors import LaunchError, UsageError
from launcher.hosts.hostfile import Host
from launcher.hosts.node_config import declared_nodes
from launcher.job.connect import READY_TIMEOUT_S, close_connections, connect_available
from launcher.job.failure import Failure, FailureCause
from launcher.job.framework_check import nodes_without_framework
from launcher.output.notes import note
from launcher.output.sink import Streams
from launcher.spec import JobSpec, RestartPolicy
from launcher.transport.connection import RunnerConnection
from launcher.transport.protocol import FrameType
from launcher.transport.ssh import CONNECT_TIMEOUT_S

RETRY_S = 2.0
"""Seconds between attempts to reach the nodes."""
LAST_ATTEMPT_S = float(CONNECT_TIMEOUT_S)
"""Timeout in seconds for the last attempt, however late it starts: ssh's timeout for a host that does not answer."""
MAX_NAMED = 8
"""Maximum number of hosts named in one line."""
JOIN_TIMEOUT_S = 60.0
"""Seconds that a new node has to answer once the cluster's lists contain it."""


class UsableHosts(NamedTuple):
    """The hosts that a restart may use, and why the others are left out."""

    hosts: list[Host]
    """In the order in which to try them."""
    reasons: list[str]


class RestartHostAllocator(Protocol):
    """Allocation of the hosts of a restart among several jobs (launcher.job_queue.allocation)."""

    def usable_hosts(self, job: JobSpec, listed: Sequence[Host]) -> UsableHosts:
        """Return which of the listed hosts the job may restart on."""

    async def allocate(self, job: JobSpec) -> str:
        """Allocate its hosts to `job`; return the reason if another job has just taken one."""


class NotRestartedError(Exception):
    """Too few nodes are available for a restart."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        """The job's failure, which is permanent."""


async def connect_for_restart(
    job: JobSpec,
    streams: Streams,
    failure: Failure,
    *,
    label: str,
    restart_host_allocator: RestartHostAllocator | None = None,
) -> list[RunnerConnection]:
    """Connect to the nodes for the restart after `failure`. Raises NotRestartedError if there are too few."""
    stderr = streams[FrameType.STDERR]
    waiting = (
        f"waiting at most {_describe_longest_wait(job.restart_policy)} for {count_nodes(len(job.hosts))} to answer"
    )
    await stderr.send(note(f"{failure.reason.rstrip('.')}; {waiting}, then restarting"))
    reachable = await gather_nodes(job, streams, restart_host_allocator)
    connections = reachable.connections
    if len(connections) < job.restart_policy.min_nodes:
        await close_connections(connections)
        available = f"{count_nodes(len(connections))} available"
        shortage = f"not restarted: {available}, at least {job.restart_policy.min_nodes} needed"
        reason = "; ".join([failure.reason, shortage, *reachable.reasons])
        raise NotRestartedError(replace(failure, reason=reason, cause=FailureCause.OTHER, permanent=True))
    hosts = [connection.host for connection in connections]
    await stderr.send(note(f"{label} on {describe_hosts(hosts, requested=job.hosts)}"))
    return connections


def describe_hosts(hosts: Sequence[Host], *, requested: Sequence[Host]) -> str:
    """Count the nodes and name them; if they are many, name the missing ones."""
    count = (
        f"{len(hosts)} of {count_nodes(len(requested))}" if len(hosts) < len(requested) else count_nodes(len(requested))
    )
    if len(hosts) <= MAX_NAMED:
        return f"{count}: {', '.join(map(str, hosts))}"
    available = {str(host) for host in hosts}
    missing = [str(host) for host in requested if str(host) not in available]
    return f"{count}, without {', '.join(missing[:MAX_NAMED])}" if missing else count


def count_nodes(number: int) -> str:
    """Return a number of nodes in words."""
    return "1 node" if number == 1 else f"{number} nodes"


@dataclass(kw_only=True, slots=True)
class ReachableNodes:
    """Connections to the nodes that answered, in the order of the hosts file, and reasons why others did not."""

    connections: list[RunnerConnection]
    reasons: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidates:
    """Hosts to connect to, in the order in which to try them."""

    hosts: Sequence[Host]
    listed: Sequence[Host]
    """All hosts of the hosts file, in its order."""
    reasons: Sequence[str]
    """Reasons why listed hosts are no candidates."""


class RejoinDeadline:
    """End of the wait for missing nodes: the setup's time counts only while a new node is on its way."""

    def __init__(self, policy: RestartPolicy, *, now: float) -> None:
        self.end = now + policy.rejoin_timeout_s
        self._latest = self.end + policy.setup_timeout_s

    def refresh_seconds_left(self, *, now: float) -> float:
        """Extend the wait if a new node is on its way, and return the seconds left.

        Call this before reading the hosts file; a node that arrives in between is then listed.
        """
        if now + JOIN_TIMEOUT_S > self.end and node_is_arriving():
            self.end = min(self._latest, now + JOIN_TIMEOUT_S)
        return self.end - now


def node_is_arriving(path: Path = Path(ARRIVING_NODES_FILE)) -> bool:
    """Return True if a new node is on its way to the cluster, or if only the master knows."""
    try:
        return path.read_text().strip() != "0"
    except OSError:
        return True


def _describe_longest_wait(policy: RestartPolicy) -> str:
    if not policy.setup_timeout_s:
        return f"{policy.rejoin_timeout_s:g} s"
    return (
        f"{policy.rejoin_timeout_s:g} s ({policy.rejoin_timeout_s + policy.setup_timeout_s:g} s if one is being set up)"
    )


async def gather_nodes(job: JobSpec, streams: Streams, allocator: RestartHostAllocator | None = None) -> ReachableNodes:
    """Connect to the first available hosts in the order of `allocator`: as many as requested, or fewer.

    Until the deadline, wait for enough nodes; then take those that are up.
    """
    clock = asyncio.get_running_loop().time
    deadline = RejoinDeadline(job.restart_policy, now=clock())
    # Nodes that the cluster no longer declares never come, so do not wait for them.
    while not _cluster_too_small(job) and not streams[FrameType.STDOUT].reader_has_gone():
        seconds_left = deadline.refresh_seconds_left(now=clock())
        if seconds_left <= 0:
            break
        candidates = _find_candidates(job, allocator)
        # A cluster's hosts file lists the nodes that are up: connect only once it lists enough.
        if len(candidates.hosts) >= len(job.hosts):
            reachable = await _connect_candidates(candidates, job, timeout_s=max(seconds_left, LAST_ATTEMPT_S))
            is_done = len(reachable.connections) >= len(job.hosts) or clock() >= deadline.end
            if is_done and await _allocate_hosts(job, reachable, allocator):
                return reachable
            await close_connections(reachable.connections)
        await asyncio.sleep(min(RETRY_S, max(0.0, deadline.end - clock())))
    reachable = await _connect_candidates(_find_candidates(job, allocator), job, timeout_s=LAST_ATTEMPT_S)
    if not await _allocate_hosts(job, reachable, allocator):
        # Another job has taken a node: try once more without its nodes, because fewer may be enough.
        reachable = await _connect_candidates(_find_candidates(job, allocator), job, timeout_s=LAST_ATTEMPT_S)
        await _allocate_hosts(job, reachable, allocator)
    reachable.reasons += _cluster_too_small(job)
    return reachable


def _cluster_too_small(job: JobSpec) -> list[str]:
    """Return the reason if the cluster has become too small for the job, else nothing."""
    declared = declared_nodes() if job.host_source is not None and job.host_source.of_cluster else None
    if declared is None or declared >= job.restart_policy.min_nodes:
        return []
    return [f"the cluster declares {count_nodes(declared)} now"]


def _find_candidates(job: JobSpec, allocator: RestartHostAllocator | None) -> _Candidates:
    """Return the hosts that the job may use now; none, with the reason, if the file cannot be read."""
    try:
        listed = job.hosts if job.host_source is None else job.host_source.read()
    except UsageError as error:
        return _Candidates(hosts=[], listed=(), reasons=[str(error)])
    usable = UsableHosts(list(listed), []) if allocator is None else allocator.usable_hosts(job, listed)
    return _Candidates(hosts=usable.hosts, listed=listed, reasons=usable.reasons)


async def _connect_candidates(candidates: _Candidates, job: JobSpec, *, timeout_s: float) -> ReachableNodes:
    """Connect to the first candidates that answer and have the job's framework: at most as many as requested."""
    if not candidates.hosts:
        return ReachableNodes(connections=[], reasons=[*candidates.reasons])
    reachable = await _connect_first(
        candidates.hosts, len(job.hosts), is_local=job.is_local, timeout_s=min(READY_TIMEOUT_S, timeout_s)
    )
    await _drop_nodes_without_framework(job, reachable)
    # Ranks follow the order of the list.
    reachable.connections.sort(key=lambda connection: candidates.listed.index(connection.host))
    return reachable


async def _allocate_hosts(job: JobSpec, reachable: ReachableNodes, allocator: RestartHostAllocator | None) -> bool:
    """Allocate the hosts that answered; if another job was faster, close the connections and return False."""
    if allocator is None:
        return True
    connections, reachable.connections = reachable.connections, []
    try:
        hosts = tuple(connection.host for connection in connections)
        reason = await allocator.allocate(job.with_hosts(hosts)) if hosts else ""
    except LaunchError as error:
        reason = str(error)
    except BaseException:  # Also after a signal.
        await close_connections(connections)
        raise
    if reason:
        reachable.reasons.append(reason)
        await close_connections(connections)
        return False
    reachable.connections = connections
    return True


async def _drop_nodes_without_framework(job: JobSpec, reachable: ReachableNodes) -> None:
    """Drop listed replacements that do not have the job's framework yet."""
    framework, unfit = await nodes_without_framework(job, reachable.connections)
    reachable.reasons += [f"{connection.host}: no {framework} yet" for connection in unfit]
    reachable.connections = [connection for connection in reachable.connections if connection not in unfit]
    await close_connections(unfit)


async def _connect_first(hosts: Sequence[Host], count: int, *, is_local: bool, timeout_s: float) -> ReachableNodes:
    """Connect to the first `count` hosts that answer, replacing each silent one by the next."""
    reachable, rest = ReachableNodes(connections=[], reasons=[]), tuple(hosts)
    try:
        while rest and (missing := count - len(reachable.connections)) > 0:
            batch, rest = rest[:missing], rest[missing:]
            connections, errors = await connect_available(batch, is_local=is_local, timeout_s=timeout_s)
            reachable.connections += connections
            reachable.reasons += map(str, errors)
    except BaseException:  # even after a signal
        await close_connections(reachable.connections)
        raise
    return reachable
