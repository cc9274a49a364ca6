"""Restart open durable jobs after the loss of the master, of all nodes, or of a node that a job needs.

The service asks the bucket once, when it starts; from then on this master's own disk has all that is open, except the
records that could not be read.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bootstrap.contract import BUCKET_VARIABLE
from launcher.detached.detach import UNIT, runtime_directory
from launcher.durable import mirror, readiness
from launcher.durable.bucket import JobBucket, open_bucket, read_bucket_location
from launcher.durable.crash_loop import CrashLoopBackoff, save
from launcher.durable.old_archives import OldArchives
from launcher.durable.record import DurableRecord
from launcher.durable.requirements import login_environment
from launcher.durable.unreadable import UnreadableJobs
from launcher.errors import LaunchError
from launcher.hosts.node_config import setup_timeout_s
from launcher.job_records.durable_state import is_unreadable
from launcher.job_records.lock import is_held
from launcher.job_records.pause_notices import log_pauses
from launcher.job_records.recorder import jobs_directory, user_name
from launcher.job_records.records import RECORD_FILE, read_record

log = logging.getLogger("launch")

POLL_S = 5.0
SUBMISSION_TIMEOUT_S = 60.0
"""Seconds until a stored job without a job record is restarted, because its submission was killed."""
READY_TIMEOUT_S = 1800.0
"""Seconds to wait for the cluster to be complete before an attempt, without the nodes' setup."""
START_TIMEOUT_S = 3600.0
"""Seconds to wait for an attempt to start, including its copies."""
SYSTEMD_TIMEOUT_S = 10.0
PROGRAM = Path(__file__).with_name("__main__.py")


class DurableJobService:
    """Service that restarts the open jobs of one user in the order of submission."""

    def __init__(
        self,
        *,
        start: Callable[[str], str | None],
        is_running: Callable[[str], bool],
        reason_not_ready: Callable[[], str | None] = readiness.reason_not_ready,
        has_minimum: Callable[[], bool] = readiness.has_minimum,
        setup_timeout_s: Callable[[], float] = setup_timeout_s,
        clock: Callable[[], float] = time.monotonic,
        save: Callable[[DurableRecord], None] = save,
    ) -> None:
        self._start = start
        self._is_running = is_running
        self._reason_not_ready = reason_not_ready
        self._has_minimum = has_minimum
        self._setup_timeout_s = setup_timeout_s
        self._clock = clock
        self._crash_loop_backoff = CrashLoopBackoff(clock=clock, save=save)
        self._unreadable = UnreadableJobs(clock=clock)
        self._ready_s = READY_TIMEOUT_S
        self._deadline: float | None = None
        self._last_reason: str | None = None

    def fetch(self, bucket: JobBucket) -> None:
        """Copy this user's open jobs from the bucket to this master. Raises LaunchError."""
        records, unreadable = bucket.read_records()
        self._unreadable.keep_only({job.job_id for job in unreadable} | {record.job.id for record in records})
        for record in records:
            _copy_open_job(record)
        for job in unreadable:
            self._unreadable.add(job.job_id, job.reason)

    def fetch_unreadable(self, open_bucket: Callable[[], JobBucket] = open_bucket) -> None:
        """Copy the jobs whose records could not be read before, if they can be now. Raises OSError on a full disk."""
        self._unreadable.read_again(open_bucket, _copy_open_job)

    def step(self) -> None:
        """Start every open job that is not running, if the cluster is complete."""
        jobs = self._end_crash_loops(self._update_open_jobs())
        if not jobs:
            self._deadline = self._last_reason = None
            return
        reason = self._reason_not_ready()
        if reason is not None:
            may_start = self._wait_for_nodes_until_deadline(jobs, reason)
            if not may_start:
                return
        self._deadline = self._last_reason = None
        for record in jobs:
            self._start_attempt(record)

    def _update_open_jobs(self) -> list[DurableRecord]:
        """Update the open jobs' counts of short attempts; return the jobs whose next attempt is due."""
        due = []
        for record in mirror.open_jobs():
            is_due = self._update_and_check_due(record)
            due += [record] if is_due else []
        return due

    def _end_crash_loops(self, records: list[DurableRecord]) -> list[DurableRecord]:
        """Fail the jobs with too many short attempts; return the others."""
        others = []
        for record in records:
            has_failed = self._crash_loop_backoff.end_if_exhausted(record)
            others += [] if has_failed else [record]
        return others

    def _update_and_check_due(self, record: DurableRecord) -> bool:
        """Update the job's count of short attempts; return True if its next attempt is due."""
        is_submitted = self._list_if_submission_was_killed(record)
        if not is_submitted:
            return False
        is_running = self._is_running(record.job.id)
        if is_running and mirror.is_waiting(record.job.id):
            self._crash_loop_backoff.record_start(record)
            return False
        self._crash_loop_backoff.observe(record, is_running=is_running)
        return not is_running and self._crash_loop_backoff.is_due(record)

    def _list_if_submission_was_killed(self, record: DurableRecord) -> bool:
        """List a job whose submission was killed as waiting; return False for a job that is still being submitted."""
        if not (jobs_directory() / record.job.id / RECORD_FILE).exists():
            if not mirror.is_older(record.job.id, SUBMISSION_TIMEOUT_S):
                return False
            mirror.write_waiting_record(record, jobs_directory())
        return True

    def _wait_for_nodes_until_deadline(self, jobs: list[DurableRecord], reason: str) -> bool:
        """Log the wait, without blocking; return True after the deadline if the cluster has its minimum.

        The first call sets the deadline. If too few nodes are up by then, the next call sets another.
        """
        ids = ", ".join(record.job.id for record in jobs)
        if self._deadline is None:
            self._ready_s = READY_TIMEOUT_S + self._setup_timeout_s()
            self._deadline = self._clock() + self._ready_s
        if self._clock() >= self._deadline:
            self._deadline = self._last_reason = None
            if self._has_minimum():
                log.warning("starting jobs %s on an incomplete cluster after %g s: %s", ids, self._ready_s, reason)
                return True
            log.error("jobs %s not started within %g s: %s", ids, self._ready_s, reason)
        elif reason != self._last_reason:
            log.info("waiting at most %g s for the nodes of %s: %s", self._deadline - self._clock(), ids, reason)
            self._last_reason = reason
        return False

    def _start_attempt(self, record: DurableRecord) -> None:
        job_id, number = record.job.id, record.job.attempt + 1
        log.info("job %s: attempt %d", job_id, number)
        try:
            record = self._crash_loop_backoff.count(record)
            error = self._start(job_id)
        except (LaunchError, OSError) as start_error:
            error = str(start_error)
        if error is None:
            self._crash_loop_backoff.record_start(record)
            log.info("job %s runs: attempt %d", job_id, number)
            return
        backoff_s = self._crash_loop_backoff.record_failed_start(record, error)
        log.error("job %s: attempt %d did not start: %s; retrying in %g s", job_id, number, error, backoff_s)


def _copy_open_job(record: DurableRecord) -> None:
    """Copy a job to this master, unless it is another user's, has ended or is known."""
    if record.job.user != user_name():
        log.error("not resuming job %s: it belongs to %s", record.job.id, record.job.user)
    elif (known := read_record(jobs_directory() / record.job.id)) is not None and known.state.is_terminal:
        log.info("not resuming job %s: it has just ended: %s", record.job.id, known.state.value)
    elif mirror.add_if_unknown(record):
        mirror.write_waiting_record(record, jobs_directory())
        log.info("job %s is open: submitted %s, attempt %d", record.job.id, record.job.submitted_at, record.job.attempt)
        return
    if is_unreadable(record.job.id):
        mirror.remove(record.job.id)


def serve() -> None:
    """Run the service until a signal ends it."""
    service = DurableJobService(start=start_in_login_environment, is_running=is_running)
    _fetch_when_possible(service)
    # Lets the service upload the records of jobs that fail here.
    os.environ.setdefault(BUCKET_VARIABLE, read_bucket_location().bucket)
    old_archives = OldArchives(clock=time.monotonic)
    while True:
        # The tasks that call S3, which may take long, come last.
        for task in (log_pauses_of_open_jobs, service.step, delete_ended, service.fetch_unreadable, old_archives.step):
            try:
                task()
            except (LaunchError, OSError) as error:
                log.warning("trying again in %g s: %s", POLL_S, error)
        time.sleep(POLL_S)


def log_pauses_of_open_jobs() -> None:
    """Add announced pauses to the logs of the open jobs, running or not. Raises OSError."""
    log_pauses(record.job.id for record in mirror.open_jobs())


def _fetch_when_possible(service: DurableJobService) -> None:
    """Query the bucket until it answers: a booting node may have no credentials yet."""
    last_error = ""
    while True:
        try:
            service.fetch(open_bucket())
            return
        except (LaunchError, OSError) as error:
            if str(error) != last_error:
                log.warning("cannot list open jobs, trying again: %s", error)
            last_error = str(error)
        time.sleep(POLL_S)


def delete_ended() -> None:
    """Delete the records of ended jobs that could not be deleted before; stop at the first failure."""
    bucket: JobBucket | None = None
    for job_id in mirror.ended_jobs():
        try:
            bucket = bucket or open_bucket()
            bucket.remove(job_id)
        except LaunchError as error:
            log.warning("job %s has ended, but %s", job_id, error)
            return
        mirror.remove(job_id)


def is_running(job_id: str) -> bool:
    """Return True if a launcher runs the job, or its unit is starting or stopping."""
    try:
        if is_held(jobs_directory() / job_id):
            return True
        state = subprocess.run(
            ["systemctl", "--user", "is-active", UNIT.format(job_id=job_id)],
            env={"XDG_RUNTIME_DIR": str(runtime_directory()), "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SYSTEMD_TIMEOUT_S,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired, LaunchError):
        return True  # Unknown: never start a job twice.
    return state not in (b"inactive", b"failed", b"unknown")


def start_in_login_environment(job_id: str) -> str | None:
    """Start an attempt with the variables of a new login; return the reason if it did not start, or None."""
    try:
        done = subprocess.run(
            [sys.executable or "python3", "-I", "-X", "utf8", str(PROGRAM), "attempt", job_id],
            env=login_environment(),
            cwd=Path.home(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {START_TIMEOUT_S:g} s"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return None if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")
