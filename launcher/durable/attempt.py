"""Decide, inside a job's unit, whether this attempt was its last."""

from dataclasses import dataclass, replace

from launcher.durable.mirror import close_job
from launcher.durable_state import is_open
from launcher.errors import LaunchError
from launcher.history.records import JobState
from launcher.job.failure import Failure
from launcher.spec import Job


@dataclass(frozen=True, slots=True)
class DurableAttempt:
    """One attempt of a durable job."""

    job_id: str
    number: int

    def prepare(self, job: Job) -> Job:
        """Return the job to run in this attempt. Raises LaunchError if the job has been stopped."""
        if not is_open(self.job_id):
            raise LaunchError(f"job {self.job_id} is over or stopped")
        if self.number == 1 or job.sync is None:
            return job
        # Keep the changes that the job made on the surviving nodes.
        return replace(job, sync=replace(job.sync, keeps=True))

    def is_stopped(self) -> bool:
        """Return True if ``launch stop`` ran before the launcher could receive its signal."""
        return not is_open(self.job_id)

    def stays_open(self, failure: Failure, state: JobState) -> bool:
        """Return True if the nodes caused the failure and nobody has stopped the job.

        A first attempt that neither ran nor queued is refused, like any other job. So is one whose nodes cannot run it,
        however long it queued.
        """
        has_begun = self.number > 1 or state is JobState.RUNNING or (state is JobState.WAITING and not failure.refused)
        return has_begun and not (failure.is_process_exit or failure.overdue) and is_open(self.job_id)

    def finish(self, state: JobState) -> None:
        """Close the job if it is over."""
        if state.is_terminal:
            close_job(self.job_id)
