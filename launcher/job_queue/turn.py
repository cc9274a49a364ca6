"""Wait for a job's turn: no earlier job waits, its nodes are up, and no other job uses them."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from launcher.errors import BusyError, LaunchError, OverdueError, UsageError
from launcher.history.lock import is_elsewhere
from launcher.history.records import JobRecord, JobState
from launcher.hosts.cluster_size import declared_nodes
from launcher.hosts.hostfile import Host, first_and_others
from launcher.job.restarts import count_nodes, describe_hosts
from launcher.job_queue.free_hosts import choose_free, with_claims
from launcher.job_queue.queue import ahead_of, jobs_overtaken_by, jobs_using_nodes_of, living_jobs
from launcher.job_queue.queue_lock import locked_queue
from launcher.output.prefixes import Streams
from launcher.spec import Job, Wait
from launcher.transport.protocol import FrameType

POLL_S = 1.0
"""Seconds between checks of the queue."""
RETRY_S = 15.0
"""Seconds before asking nodes in use again; their answer is the only sign that a process outside any job has ended.
Meanwhile the job takes other nodes, if enough are free.
"""
REPORT_S = 10.0
"""Deadline for a terminal to accept a line, in seconds; a blocked one (Ctrl-S) must not hold up the queue."""


class TurnObserver(Protocol):
    """Recorder of the job's place in the queue (launcher.history.journal)."""

    def on_waiting(self, text: str, *, place: int) -> None:
        """Handle a change of the job's place, counted from 1; `text` describes it for the user."""

    def on_turn(self, job: Job) -> None:
        """Handle the job's turn: from now on it owns the nodes of `job`."""

    def on_turn_lost(self) -> None:
        """Handle the loss of the turn: the job has to wait again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """A queued job: where its record is, and where it prints and reports."""

    job_id: str
    jobs: Path
    """Directory of this machine's jobs."""
    streams: Streams
    observer: TurnObserver


def assign_nodes(job: Job, job_id: str, *, jobs: Path) -> Job:
    """Assign nodes to a job without --wait: free ones if there are enough.

    Raises LaunchError if an earlier job waits for its nodes, or has their GPUs: the nodes' own reports come too late
    for a job that starts at the same moment as this one.
    """
    living = living_jobs(jobs)
    me = next((record for record in living if record.id == job_id), None)
    if me is None:
        return job
    others = [record for record in living if record is not me]
    # Jobs of other machines that share this home directory are known late; the nodes report them.
    near = [record for record in others if not is_elsewhere(record)]
    # While a job waits, the free nodes may be those that it waits for.
    if job.has_gpus and not any(_waits_in_queue(record) for record in near):
        job = choose_free(job, me, near)
    me = with_claims(me, job)
    if first := jobs_overtaken_by(me, others):
        raise LaunchError(
            f"nothing started, {name_job(first[0])} waits for these nodes (--wait queues the job behind it, "
            "--force starts anyway)"
        )
    if job.has_gpus and (blocking := jobs_using_nodes_of(me, near)):
        detail = f"{name_job(blocking[0])} has them"
        advice = "--wait queues the job, --force starts anyway"
        raise BusyError(f"nothing started, GPUs are in use ({advice}): {detail}", detail=detail)
    return job


def _waits_in_queue(record: JobRecord) -> bool:
    return record.waits and not record.starting and record.state in (JobState.PENDING, JobState.WAITING)


async def take_nodes(job: Job, ticket: Ticket) -> Job:
    """Take the nodes of a job without --wait at once; return the job with them."""
    async with locked_queue(ticket.jobs):
        chosen = job if job.force else assign_nodes(job, ticket.job_id, jobs=ticket.jobs)
        ticket.observer.on_turn(chosen)
    if chosen.hosts != job.hosts:
        await print_line(describe_choice(chosen, requested=job.hosts), ticket.streams)
    return chosen


class Turn:
    """One job's wait in the queue for its turn."""

    def __init__(self, job: Job, wait: Wait, ticket: Ticket) -> None:
        self._job = job
        self._wait = wait
        self._ticket = ticket
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + wait.timeout_s
        self._in_use: dict[str, str] = {}
        """Nodes left out until `_retry_at`, with the users of their GPUs."""
        self._delay = ""
        """Reason why the job waits until `_retry_at`, whichever nodes are free."""
        self._retry_at = 0.0
        self._last_report = ""
        self._printed_choices: set[str] = set()
        self._was_refused = False

    @property
    def has_waited(self) -> bool:
        """Return True if the job has waited in the queue, or other nodes have refused it."""
        return self._was_refused or bool(self._last_report)

    def try_later(self, error: BusyError) -> None:
        """Leave the nodes that are in use out for RETRY_S; delay the job for as long if the error names none."""
        self._retry_at = self._clock() + RETRY_S
        if error.nodes:
            self._in_use |= error.nodes
        else:
            self._delay = error.detail
        self._was_refused = True
        self._ticket.observer.on_turn_lost()

    async def wait(self) -> Job:
        """Wait for the job's turn and take it; return the job with its current nodes.

        Raises OverdueError at the deadline.
        """
        while True:
            first, lack = with_current_hosts(self._job, self._wait)
            async with locked_queue(self._ticket.jobs):
                job, place, reason = self._check_turn(first, lack)
                if not reason:
                    self._ticket.observer.on_turn(job)
            if not reason:
                if job.hosts != first.hosts:
                    await self._print_choice(job, requested=first.hosts)
                return job
            text = f"{ordinal(place)} in the queue, for {self._describe_size(job)} ({reason})"
            left = self._deadline - self._clock()
            if left <= 0:
                raise OverdueError(f"not started within {self._wait.timeout_s:g} s (--wait-timeout): {text}")
            await self._report_place(text, place)
            await asyncio.sleep(min(POLL_S, left))

    def _check_turn(self, job: Job, lack: str) -> tuple[Job, int, str]:
        """Return the job (on free nodes if its turn has come), its place in the queue, and why it must wait.

        The reason is empty if the job need not wait.
        """
        living = living_jobs(self._ticket.jobs)
        me = next((record for record in living if record.id == self._ticket.job_id), None)
        if me is None:
            raise LaunchError("--wait needs a record of the job, and none can be written")
        others = [record for record in living if record is not me]
        if self._clock() >= self._retry_at:
            self._in_use, self._delay = {}, ""
        ahead = ahead_of(with_claims(me, job), others)
        if not (ahead or lack or self._wait.nodes is None):
            # Jobs that may share nodes start on all that they ask for.
            min_nodes = self._wait.nodes[0] if self._wait.exclusive else None
            job = choose_free(job, me, others, in_use=self._in_use, min_nodes=min_nodes)
        me = with_claims(me, job)
        blocking = jobs_using_nodes_of(me, others) if self._wait.exclusive else []
        reasons = [f"{name_job(blocking[0])} has them"] if blocking else []
        reasons += [f"after {name_job(ahead[-1])}"] if ahead else []
        reasons += filter(None, (lack, self._delay, self._describe_use(job)))
        return job, len(ahead) + 1, next(iter(reasons), "")

    def _describe_use(self, job: Job) -> str:
        """Say what uses the job's nodes, and how many others are in use; empty if nothing uses them."""
        own = [self._in_use[name] for name in map(str, job.hosts) if name in self._in_use]
        others = len(self._in_use) - len(own)
        return ", ".join(own) + (f" and {others} more" if own and others else "")

    def _describe_size(self, job: Job) -> str:
        min_nodes = self._wait.nodes[0] if self._wait.nodes else len(job.hosts)
        max_nodes = max(len(job.hosts), min_nodes)
        return count_nodes(max_nodes) if min_nodes == max_nodes else f"{min_nodes} to {count_nodes(max_nodes)}"

    async def _print_choice(self, job: Job, *, requested: Sequence[Host]) -> None:
        """Print once on which nodes the job starts, or tries to: it may look for free nodes for hours."""
        if self._in_use:
            reason = f"because GPUs are in use ({first_and_others([*self._in_use.values()])})"
            text = f"trying {describe_hosts(job.hosts, requested=job.hosts)}, {reason}"
        else:
            text = describe_choice(job, requested=requested)
        if text not in self._printed_choices:
            self._printed_choices.add(text)
            await print_line(text, self._ticket.streams)

    async def _report_place(self, text: str, place: int) -> None:
        if self._ticket.streams[FrameType.STDOUT].reader_has_gone():
            raise LaunchError("left the queue: the job's output is no longer read")
        if text != self._last_report:
            self._ticket.observer.on_waiting(text, place=place)
            self._last_report = text
            await print_line(f"waiting, {text}", self._ticket.streams)


async def print_line(text: str, streams: Streams) -> None:
    """Print a line, unless the terminal takes none: that must not hold up the queue."""
    line = f"launch: {text}\n".encode(errors="replace")
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(streams[FrameType.STDERR].send(line), REPORT_S)


def describe_choice(job: Job, *, requested: Sequence[Host]) -> str:
    """Say on which nodes a job starts because other jobs have the first ones, or all others that it asks for."""
    used = "the nodes listed before" if len(job.hosts) == len(requested) else "the others"
    return f"starting on {describe_hosts(job.hosts, requested=requested)}, because other jobs use {used}"


def with_current_hosts(job: Job, wait: Wait) -> tuple[Job, str]:
    """Return the job on its current nodes, and what prevents its start, or an empty string.

    Raises LaunchError if the cluster has become too small for the job, because it would block the queue.
    """
    if job.host_source is None:
        return job, ""
    try:
        listed = job.host_source.read()
    except UsageError as error:
        return job, str(error)
    min_nodes, max_nodes = wait.nodes or (1, len(listed))
    if len(listed) < min_nodes:
        declared = declared_nodes() if job.host_source.of_cluster else None
        if declared is not None and declared < min_nodes:
            raise LaunchError(f"the cluster declares {count_nodes(declared)} now, the job needs {min_nodes}")
        return job, f"{len(listed)} of {min_nodes} nodes are up"
    hosts = listed[:max_nodes]
    if hosts == job.hosts:
        return job, ""
    policy = replace(job.restart_policy, min_nodes=min(job.restart_policy.min_nodes, len(hosts)))
    return replace(job.with_hosts(hosts), restart_policy=policy), ""


def name_job(record: JobRecord) -> str:
    """Describe a job by its id and user."""
    return f"job {record.id} of {record.user}"


def ordinal(number: int) -> str:
    """Format a number as 1st, 2nd, 3rd, 4th and so on."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
