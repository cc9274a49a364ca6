"""Define why a job failed, and hold the first failure of several."""

import asyncio
from dataclasses import dataclass

from launcher.hosts.hostfile import Host

NODE_LOST = 1
"""Exit code of a job that lost a node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Explain why a job failed: its exit code, one line, and the process's last output."""

    exit_code: int
    reason: str
    tail: tuple[bytes, ...] = ()
    log: str | None = None
    """File with the whole output."""
    final: bool = False
    """True if no restart can help."""
    preempted: bool = False
    """True if AWS took a node after a notice (launcher.job.preemption): the job is not at fault."""
    preempted_host: Host | None = None
    """The preempted node."""
    cancelled: bool = False
    """Whether somebody ended the job on purpose."""


def set_first_failure(failure: "asyncio.Future[Failure]", value: Failure) -> None:
    """Set the job's failure, unless it has one already."""
    if not failure.done():
        failure.set_result(value)
