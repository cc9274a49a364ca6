"""Decide inside a job's unit whether an attempt was the job's last one."""

from dataclasses import dataclass, replace

from launcher.durable.mirror import close_job
from launcher.durable_state import is_open
from launcher.errors import LaunchError
from launcher.history.records import State
from launcher.job.failure import Failure
from launcher.spec import Job


@dataclass(frozen=True, slots=True)
class DurableAttempt:
    """One attempt of a durable job."""

    job_id: str
    number: int

    def prepare(self, job: Job) -> Job:
        """Return the job of this attempt. Raises LaunchError if it was stopped meanwhile."""
        if not is_open(self.job_id):
            raise LaunchError(f"job {self.job_id} is over or stopped")
        if self.number == 1 or job.sync is None:
            return job
        # The nodes that stayed have what the job has changed there.
        return replace(job, sync=replace(job.sync, keeps=True))

    def is_stopped(self) -> bool:
        """Return True if ``launch stop`` came before the launcher could be signalled."""
        return not is_open(self.job_id)

    def stays_open(self, failure: Failure, state: State) -> bool:
        """Return True if the failure is the nodes', not the job's own, and nobody has stopped the job.

        A first attempt that neither ran nor stood in line is refused, as any other job would be; so is one whose nodes
        cannot run it, however long it stood there.
        """
        has_begun = self.number > 1 or state is State.RUNNING or (state is State.WAITING and not failure.refused)
        return has_begun and not (failure.of_process or failure.overdue) and is_open(self.job_id)

    def finish(self, state: State) -> None:
        """Close the job if it is over."""
        if state.is_terminal:
            close_job(self.job_id)
