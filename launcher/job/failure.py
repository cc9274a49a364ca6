"""Describe why a job failed, keep the first of several failures, and decide its cause.

A failure has the cause that is known where it occurs. When its run is over, `cause_after_run` decides whether a node
caused it; for a durable job, whose nodes may leave the cluster later, launcher.job.node_loss.wait_for_node_loss does so
once more. A restart that does not start is another failure, of cause OTHER.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from launcher.errors import LaunchError, QueueTimeoutError, RefusedError
from launcher.hosts.hostfile import Host

NODE_LOST_EXIT_CODE = 1
"""Exit code of a job that lost a node."""
SHORT_RUN_S = 300.0
"""Seconds below which a failed run counts against --max-restarts even after a preemption, because a job that
crashes its machines must not restart without limit.
"""


class FailureCause(Enum):
    """Cause of a job's failure, which decides whether the job restarts."""

    PROCESS_EXIT = "process exit"
    """A process of the job failed and not a node: a durable job then ends and is not restarted."""
    NODE_LOSS = "node loss"
    PREEMPTION = "preemption"
    """AWS took a node after a notice (launcher.job.node_loss): this is not the job's fault."""
    REFUSAL = "refusal"
    """The nodes cannot run the job: a durable job then ends, unless it has run before."""
    QUEUE_TIMEOUT = "queue timeout"
    """The job waited in the queue for as long as it may: a durable job then ends."""
    CANCELLATION = "cancellation"
    """The user ended the job."""
    OTHER = "other"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The reason of a failure: exit code, one line, and where the process's output is."""

    exit_code: int
    reason: str
    failed_rank: int | None = None
    """Rank that failed; None if a parameter server failed, or no process did."""
    tail: tuple[bytes, ...] = ()
    """Last lines of the process's output, unless they have been shown."""
    log: str | None = None
    """File with the complete output."""
    cause: FailureCause = FailureCause.OTHER
    permanent: bool = False
    """True if a restart cannot help."""
    departed_host: Host | None = None
    """The node that drained or was lost."""
    instances: Mapping[Host, str | None] = field(default_factory=dict)
    """Instances of the run's nodes at its start; empty outside a cluster and for jobs that are not durable."""

    @classmethod
    def of_error(cls, error: LaunchError) -> "Failure":
        """Return the failure of a job that could not start."""
        if isinstance(error, RefusedError):
            cause = FailureCause.REFUSAL
        elif isinstance(error, QueueTimeoutError):
            cause = FailureCause.QUEUE_TIMEOUT
        else:
            cause = FailureCause.OTHER
        return cls(exit_code=error.exit_code, reason=str(error), cause=cause)


def set_first_failure(first_failure: "asyncio.Future[Failure]", value: Failure) -> None:
    """Set the job's failure, unless it already has one."""
    if not first_failure.done():
        first_failure.set_result(value)


def cause_after_run(failure: Failure, *, silent_hosts: Collection[Host], run_s: float) -> FailureCause:
    """Return the cause of the failure of a run that took `run_s`; its `silent_hosts` did not answer the stop request.

    Ranks fail before the loss of another rank's node is noticed. A node with a notice is alive and reports the end of
    its processes; a silent one has crashed, possibly because of the job.
    """
    if failure.cause is FailureCause.PROCESS_EXIT:
        node_was_lost = bool(silent_hosts)
    else:
        is_preemption = failure.cause is FailureCause.PREEMPTION
        node_was_lost = is_preemption and (failure.departed_host in silent_hosts or run_s < SHORT_RUN_S)
    return FailureCause.NODE_LOSS if node_was_lost else failure.cause
