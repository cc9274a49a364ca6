"""Wait for a job's turn: no earlier job waits, its nodes are up, and no other job uses them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.errors import BusyError, LaunchError, QueueTimeoutError, UsageError
from launcher.hosts.hostfile import Host, first_and_others
from launcher.hosts.node_config import declared_nodes
from launcher.job.restarts import count_nodes, describe_hosts
from launcher.job_queue.allocation import QueueContext, describe_choice, name_job
from launcher.job_queue.free_hosts import select_free_nodes, with_allocation
from launcher.job_queue.queue import conflicting_jobs, jobs_ahead_of, live_jobs, own_and_others
from launcher.job_queue.queue_lock import locked_queue
from launcher.output.notes import print_note
from launcher.spec import JobSpec, NodeRange, QueuePolicy
from launcher.transport.protocol import FrameType

POLL_S = 1.0
"""Seconds between checks of the queue."""
RETRY_S = 15.0
"""Seconds before retrying busy nodes: only their reply shows that a process outside any job has ended.

Meanwhile the job takes other nodes, if enough are free.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueCheck:
    """Result of one look at the queue."""

    job: JobSpec
    """The job, on free nodes if no earlier job waits."""
    position: int
    """Queue position, counted from 1."""
    blocked_by: str | None
    """Reason why the job must wait; None: it is the job's turn."""


class QueueWait:
    """One job's wait in the queue, until it is its turn."""

    def __init__(self, job: JobSpec, policy: QueuePolicy, queue_context: QueueContext) -> None:
        self._job = job
        self._policy = policy
        self._queue_context = queue_context
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + policy.timeout_s
        self._busy_nodes: dict[str, str] = {}
        """Nodes left out until `_retry_at`, with the users of their GPUs."""
        self._delay_reason = ""
        """Reason why the job waits until `_retry_at`, whichever nodes are free."""
        self._retry_at = 0.0
        self._last_report = ""
        self._printed_choices: set[str] = set()
        self._was_refused = False

    @property
    def has_waited(self) -> bool:
        """Return True if the job has waited in the queue, or nodes allocated to it turned out to be in use."""
        return self._was_refused or bool(self._last_report)

    def requeue(self, error: BusyError) -> None:
        """Skip the busy nodes for RETRY_S; if the error names none, delay the whole job by that time."""
        self._retry_at = self._clock() + RETRY_S
        if error.users_by_node:
            self._busy_nodes |= error.users_by_node
        else:
            self._delay_reason = error.detail
        self._was_refused = True
        self._queue_context.observer.on_waiting_again()

    async def wait_and_allocate(self) -> JobSpec:
        """Wait for the turn and allocate the nodes; return the job with its current nodes.

        Raises QueueTimeoutError at the deadline.
        """
        while True:
            requested, unready_reason = with_current_hosts(self._job, self._policy)
            async with locked_queue(self._queue_context.jobs_dir):
                check = self._check_queue(requested, unready_reason)
                if check.blocked_by is None:
                    self._queue_context.observer.on_allocated(check.job)
            if check.blocked_by is None:
                if check.job.hosts != requested.hosts:
                    await self._print_choice(check.job, requested=requested.hosts)
                return check.job
            size = self._describe_size(check.job)
            text = f"{ordinal(check.position)} in the queue, for {size} ({check.blocked_by})"
            left = self._deadline - self._clock()
            if left <= 0:
                raise QueueTimeoutError(f"not started within {self._policy.timeout_s:g} s (--wait-timeout): {text}")
            await self._report_position(text, check.position)
            await asyncio.sleep(min(POLL_S, left))

    def _check_queue(self, job: JobSpec, unready_reason: str) -> QueueCheck:
        """Look at the queue and the nodes; choose free nodes for the job if no earlier job waits."""
        record, others = own_and_others(live_jobs(self._queue_context.jobs_dir), self._queue_context.job_id)
        if record is None:
            raise LaunchError("--wait needs a record of the job, and none can be written")
        if self._clock() >= self._retry_at:
            self._busy_nodes, self._delay_reason = {}, ""
        ahead = jobs_ahead_of(with_allocation(record, job), others)
        if not (ahead or unready_reason or self._policy.nodes is None):
            # Jobs that may share nodes start on all that they ask for.
            min_nodes = self._policy.nodes.min if self._policy.exclusive else None
            job = select_free_nodes(job, record, others, in_use=self._busy_nodes, min_nodes=min_nodes)
        record = with_allocation(record, job)
        blocking = conflicting_jobs(record, others) if self._policy.exclusive else []
        reasons = [f"in use by {name_job(blocking[0])}"] if blocking else []
        reasons += [f"after {name_job(ahead[-1])}"] if ahead else []
        reasons += filter(None, (unready_reason, self._delay_reason, self._describe_use(job)))
        return QueueCheck(job=job, position=len(ahead) + 1, blocked_by=next(iter(reasons), None))

    def _describe_use(self, job: JobSpec) -> str:
        """Say what uses the job's nodes, and how many others are in use; empty if nothing uses them."""
        own_users = [self._busy_nodes[name] for name in map(str, job.hosts) if name in self._busy_nodes]
        others = len(self._busy_nodes) - len(own_users)
        return ", ".join(own_users) + (f" and {others} more" if own_users and others else "")

    def _describe_size(self, job: JobSpec) -> str:
        min_nodes = self._policy.nodes.min if self._policy.nodes else len(job.hosts)
        max_nodes = max(len(job.hosts), min_nodes)
        return count_nodes(max_nodes) if min_nodes == max_nodes else f"{min_nodes} to {count_nodes(max_nodes)}"

    async def _print_choice(self, job: JobSpec, *, requested: Sequence[Host]) -> None:
        """Print once on which nodes the job starts, or tries to: it may look for free nodes for hours."""
        if self._busy_nodes:
            reason = f"because GPUs are in use ({first_and_others([*self._busy_nodes.values()])})"
            text = f"trying {describe_hosts(job.hosts, requested=job.hosts)}, {reason}"
        else:
            text = describe_choice(job, requested=requested)
        if text not in self._printed_choices:
            self._printed_choices.add(text)
            await print_note(text, self._queue_context.streams[FrameType.STDERR])

    async def _report_position(self, text: str, position: int) -> None:
        if self._queue_context.streams[FrameType.STDOUT].reader_has_gone():
            raise LaunchError("left the queue: the job's output is no longer read")
        if text != self._last_report:
            self._queue_context.observer.on_waiting(text, queue_position=position)
            self._last_report = text
            await print_note(f"waiting, {text}", self._queue_context.streams[FrameType.STDERR])


def with_current_hosts(job: JobSpec, queue_policy: QueuePolicy) -> tuple[JobSpec, str]:
    """Return the job on its current nodes, and the reason why it cannot start there, empty if it can.

    Raises LaunchError if the cluster has become too small for the job, because it would block the queue.
    """
    if job.host_source is None:
        return job, ""
    try:
        listed = job.host_source.read()
    except UsageError as error:
        return job, str(error)
    wanted = queue_policy.nodes or NodeRange(min=1, max=len(listed))
    if len(listed) < wanted.min:
        declared = declared_nodes() if job.host_source.of_cluster else None
        if declared is not None and declared < wanted.min:
            raise LaunchError(f"the cluster declares {count_nodes(declared)} now, the job needs {wanted.min}")
        return job, f"{len(listed)} of {wanted.min} nodes are up"
    hosts = listed[: wanted.max]
    if hosts == job.hosts:
        return job, ""
    policy = replace(job.restart_policy, min_nodes=min(job.restart_policy.min_nodes, len(hosts)))
    return replace(job.with_hosts(hosts), restart_policy=policy), ""


def ordinal(number: int) -> str:
    """Format a number as 1st, 2nd, 3rd, 4th and so on."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
