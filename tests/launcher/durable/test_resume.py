"""Test how a master restarts the open jobs."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.durable import mirror
from launcher.durable.attempt import DurableAttempt, start_attempt
from launcher.durable.bucket import JobBucket
from launcher.durable.crash_loop import FIRST_BACKOFF_S, MAX_BACKOFF_S, MAX_SHORT_ATTEMPTS, MIN_LONG_ATTEMPT_S
from launcher.durable.service import READY_TIMEOUT_S, DurableJobService
from launcher.job_records.durable_state import durable_directory
from launcher.job_records.job_lookup import all_jobs
from launcher.job_records.recorder import jobs_directory
from launcher.job_records.records import JobState, write_record
from tests.launcher.durable.durable_jobs import Submit, durable_job


class Master:
    """A master's service with a clock, and jobs that start unless `errors` gives a reason."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reason: str | None = None
        self.has_minimum = False
        self.setup_s = 0.0
        self.errors: dict[str, str] = {}
        self.started: list[str] = []
        self.running: set[str] = set()
        self.service = DurableJobService(
            start=self.start,
            is_running=self.running.__contains__,
            reason_not_ready=lambda: self.reason,
            has_minimum=lambda: self.has_minimum,
            setup_timeout_s=lambda: self.setup_s,
            clock=lambda: self.now,
            save=mirror.update,
        )

    def start(self, job_id: str) -> str | None:
        self.started.append(job_id)
        if job_id not in self.errors:
            self.running.add(job_id)
        return self.errors.get(job_id)

    def step(self, *, at: float) -> None:
        self.now = at
        self.service.step()


@pytest.fixture
def master(home: Path) -> Master:
    return Master()


def lose_the_master(*jobs: Any) -> None:
    for record in jobs:
        mirror.remove(record.job.id)


def test_new_master_starts_open_jobs_in_the_order_of_submission(
    master: Master, bucket: JobBucket, submit: Submit
) -> None:
    jobs = [submit("true", start=f"2026-11-23T1{hour}:00:00Z") for hour in (2, 0, 1)]
    lose_the_master(*jobs)
    master.service.fetch(bucket)
    assert [(job.id, job.state, job.attempt) for job in all_jobs()] == [
        (job_id, JobState.WAITING, 1) for job_id in sorted(record.job.id for record in jobs)
    ]
    master.step(at=0)
    assert master.started == [jobs[1].job.id, jobs[2].job.id, jobs[0].job.id]
    master.step(at=5)
    assert len(master.started) == 3


def test_job_of_another_user_is_named_and_not_started(
    master: Master, bucket: JobBucket, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    record = submit("true", user="mallory")
    lose_the_master(record)
    master.service.fetch(bucket)
    master.step(at=0)
    assert master.started == []
    assert f"not resuming job {record.job.id}: it belongs to mallory" in caplog.text


def test_job_that_is_just_being_submitted_is_left_alone(master: Master, submit: Submit) -> None:
    record = submit("true")
    master.step(at=0)
    assert master.started == []
    # Its submission was killed, or the records of twenty later jobs have replaced its own.
    os.utime(durable_directory(record.job.id) / "record.json", (0, 0))
    master.step(at=5)
    assert master.started == [record.job.id]


def test_jobs_wait_until_the_cluster_is_complete(
    master: Master, bucket: JobBucket, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    record = submit("true")
    lose_the_master(record)
    master.service.fetch(bucket)
    master.reason = "2 of 3 nodes are up"
    master.step(at=0)
    master.step(at=5)
    assert caplog.text.count("waiting at most 1800 s for the nodes of") == 1
    master.step(at=READY_TIMEOUT_S)
    assert f"jobs {record.job.id} not started within 1800 s: 2 of 3 nodes are up" in caplog.text
    master.reason = None
    master.step(at=READY_TIMEOUT_S + 5)
    assert master.started == [record.job.id]


def test_job_starts_with_its_minimum_after_the_wait(master: Master, bucket: JobBucket, submit: Submit) -> None:
    record = submit("true")
    lose_the_master(record)
    master.service.fetch(bucket)
    master.reason, master.has_minimum = "2 of 3 nodes are up", True
    master.step(at=0)
    master.step(at=READY_TIMEOUT_S - 1)
    assert master.started == []
    master.step(at=READY_TIMEOUT_S)
    assert master.started == [record.job.id]


def test_wait_for_nodes_grows_with_the_time_for_their_setup(
    master: Master, bucket: JobBucket, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    record = submit("true")
    lose_the_master(record)
    master.service.fetch(bucket)
    master.reason, master.has_minimum, master.setup_s = "2 of 3 nodes are up", True, 900
    master.step(at=0)
    master.step(at=READY_TIMEOUT_S + 899)
    assert master.started == []
    master.step(at=READY_TIMEOUT_S + 900)
    assert master.started == [record.job.id]
    assert f"starting jobs {record.job.id} on an incomplete cluster after 2700 s" in caplog.text


def test_queue_time_does_not_count_as_run_time(master: Master, bucket: JobBucket, submit: Submit) -> None:
    record = submit("true")
    lose_the_master(record)
    master.service.fetch(bucket)
    master.step(at=0)
    directory = jobs_directory() / record.job.id
    write_record(directory, replace(record.job, state=JobState.WAITING, waiting="1st in the queue, for 2 nodes (x)"))
    counts = []
    for at, waiting in (
        (MIN_LONG_ATTEMPT_S, "1st in the queue"),
        (MIN_LONG_ATTEMPT_S + 5, None),
        (2 * MIN_LONG_ATTEMPT_S - 1, None),
        (2 * MIN_LONG_ATTEMPT_S + 5, None),
    ):
        write_record(directory, replace(record.job, state=JobState.RUNNING, waiting=waiting))
        master.step(at=at)
        counts += [stored.short_attempts for stored in mirror.open_jobs()]
    assert counts == [1, 1, 1, 0]


def test_failed_start_is_retried_with_backoff(
    master: Master, bucket: JobBucket, submit: Submit, caplog: pytest.LogCaptureFixture
) -> None:
    record = submit("true")
    lose_the_master(record)
    master.service.fetch(bucket)
    master.errors[record.job.id] = "GPU 0 is in use"
    times = [0, FIRST_BACKOFF_S - 1, FIRST_BACKOFF_S, 2 * FIRST_BACKOFF_S, 3 * FIRST_BACKOFF_S]
    counts = []
    for at in times:
        master.step(at=at)
        counts.append(len(master.started))
    assert counts == [1, 1, 2, 2, 3]
    message = f"attempt 2 did not start: GPU 0 is in use; retrying in {FIRST_BACKOFF_S:g} s"
    assert f"job {record.job.id}: {message}" in caplog.text


@pytest.mark.parametrize("error", ["-n must be at most 4", None])
def test_job_fails_after_ten_short_attempts_in_a_row(
    master: Master, bucket: JobBucket, submit: Submit, error: str | None
) -> None:
    record = submit("true")
    lose_the_master(record)
    master.service.fetch(bucket)
    if error:
        master.errors[record.job.id] = error
    backoffs, ended, at = [], 0.0, 0.0
    while (state := all_jobs()[0].state) is JobState.WAITING:
        before = len(master.started)
        master.step(at=at)
        if len(master.started) > before:
            backoffs.append(at - ended)
            master.running.clear()  # by the next step, the attempt has lost a node
            ended = at
        at += 5
    assert (state, len(master.started)) == (JobState.FAILED, MAX_SHORT_ATTEMPTS)
    assert backoffs[1] < 2 * FIRST_BACKOFF_S
    assert MAX_BACKOFF_S <= backoffs[-1] <= MAX_BACKOFF_S + 5
    assert f"10 attempts in a row did not start or ran for less than 600 s, the last: {error or ''}" in str(
        all_jobs()[0].reason
    )


def test_long_attempt_resets_the_restart_count(master: Master, bucket: JobBucket, submit: Submit) -> None:
    record = submit("true")
    lose_the_master(record)
    master.service.fetch(bucket)
    counts = []
    for at in (0, MIN_LONG_ATTEMPT_S - 1, MIN_LONG_ATTEMPT_S):
        master.step(at=at)
        counts += [stored.short_attempts for stored in mirror.open_jobs()]
    assert counts == [1, 1, 0]
    master.running.clear()
    master.step(at=MIN_LONG_ATTEMPT_S + 5)
    assert len(master.started) == 2


def test_job_ending_during_service_start_does_not_resume(master: Master, bucket: JobBucket, submit: Submit) -> None:
    record = submit("true")
    mirror.write_waiting_record(record, jobs_directory())
    write_record(jobs_directory() / record.job.id, replace(record.job, state=JobState.SUCCEEDED))
    lose_the_master(record)  # like the job's end, after the service has read the bucket
    master.service.fetch(bucket)
    assert mirror.open_jobs() == []


def test_attempt_runs_the_stored_command_in_the_stored_files(
    home: Path, bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = home / "code"
    source.mkdir()
    (source / "train.py").write_text("print(1)")
    (home / ".ssh").mkdir()
    (home / ".ssh/authorized_keys").write_text("ssh-rsa AAAA anna\n")
    (home / "login").write_text("publickey ssh-rsa AAAA\n")
    monkeypatch.setenv("SSH_USER_AUTH", str(home / "login"))
    record = submit("--sync-dst-dir", "code", "--env", "LR:0.1", "train.py", cwd=source)
    monkeypatch.delenv("SSH_USER_AUTH")
    lose_the_master(record)
    (source / "train.py").write_text("print(2)")
    mirror.write(record)
    seen: dict[str, Any] = {}
    detach = "launcher.durable.attempt.detach"
    monkeypatch.setattr(detach, lambda arguments, **values: seen.update(values, arguments=arguments) or 0)
    monkeypatch.setattr("os.chdir", lambda path: None)
    monkeypatch.setenv("DEEPLEARNING_WORKERS_PATH", str(home / "hosts"))
    assert start_attempt(record.job.id, bucket=bucket) == 0
    assert (seen["arguments"], seen["durable"].job_id, seen["durable"].attempt) == (record.arguments, record.job.id, 2)
    assert seen["durable"].started_by == "anna"
    assert (Path(seen["cwd"]) / "train.py").read_text() == "print(1)"
    assert [stored.job.attempt for stored in bucket.read_records()[0]] == [2]


def test_next_attempt_keeps_changed_files_on_nodes(home: Path, submit: Submit) -> None:
    record = submit("--sync-dst-dir", "code", "true")
    job, _ = durable_job("--sync-dst-dir", "code", "true", home=home)
    for number, keeps in ((1, False), (2, True)):
        prepared = DurableAttempt(record.job.id, number).prepare(job)
        assert prepared.sync is not None
        assert prepared.sync.keeps_changed_files is keeps


def test_job_whose_launcher_died_waits(bucket: JobBucket, submit: Submit, home: Path) -> None:
    record = submit("true")
    mirror.write_waiting_record(record, jobs_directory())
    path = jobs_directory() / record.job.id / "job.json"
    path.write_bytes(replace(record.job, state=JobState.RUNNING).to_bytes())
    assert [job.state for job in all_jobs()] == [JobState.WAITING]
    mirror.remove(record.job.id)
    assert [job.state for job in all_jobs()] == [JobState.FAILED]
