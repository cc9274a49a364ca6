"""Test which ends of an attempt end a durable job."""

import pytest

from launcher.durable.attempt import DurableAttempt
from launcher.errors import QueueTimeoutError, RefusedError, UsageError
from launcher.hosts.hostfile import Host
from launcher.job.failure import Failure, FailureCause, cause_after_run
from launcher.job_records.durable_state import mark_ended
from launcher.job_records.records import JobState
from tests.launcher.durable.durable_jobs import Submit


@pytest.mark.parametrize(
    ("failure", "state", "number", "stays"),
    [
        (Failure(exit_code=1, reason="node lost"), JobState.RUNNING, 1, True),
        (
            Failure(exit_code=143, reason="stopped by SIGTERM", cause=FailureCause.CANCELLATION),
            JobState.RUNNING,
            1,
            True,
        ),
        (Failure(exit_code=3, reason="rank 0 ended", cause=FailureCause.PROCESS_EXIT), JobState.RUNNING, 1, False),
        (Failure(exit_code=1, reason="cannot reach"), JobState.PENDING, 1, False),
        (Failure(exit_code=1, reason="cannot reach"), JobState.PENDING, 2, True),
        (Failure(exit_code=1, reason="lost while it received files"), JobState.WAITING, 1, True),
        (Failure.of_error(RefusedError("no horovod")), JobState.WAITING, 1, False),
        (Failure.of_error(UsageError("no such directory")), JobState.WAITING, 1, False),
        (Failure.of_error(RefusedError("no horovod")), JobState.WAITING, 2, True),
        (Failure.of_error(RefusedError("different setups")), JobState.RUNNING, 1, True),
        (Failure.of_error(QueueTimeoutError("not started within 24 h")), JobState.WAITING, 2, False),
    ],
)
def test_job_stays_open_unless_it_failed_by_itself(
    submit: Submit, *, failure: Failure, state: JobState, number: int, stays: bool
) -> None:
    record = submit("true")
    attempt = DurableAttempt(record.job.id, number)
    assert attempt.stays_open(failure, state) is stays
    mark_ended(record.job.id)  # like launch stop
    assert not attempt.stays_open(failure, state)


@pytest.mark.parametrize("silent", [True, False])
def test_failure_caused_by_a_lost_node_does_not_end_the_job(*, silent: bool) -> None:
    """Ranks fail when their peers disappear, before the lost node's silence is noticed."""
    failure = Failure(exit_code=1, reason="rank 0 ended", cause=FailureCause.PROCESS_EXIT)
    cause = cause_after_run(failure, silent_hosts=[Host(name="a")] if silent else [], run_s=1.0)
    assert cause is (FailureCause.NODE_LOSS if silent else FailureCause.PROCESS_EXIT)
