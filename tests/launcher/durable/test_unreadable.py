"""Test that a job whose record S3 denies is listed, read again, and can be stopped."""

import errno
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from launcher.durable import mirror, service
from launcher.durable.bucket import JobBucket
from launcher.durable.old_archives import OldArchives
from launcher.durable.service import DurableJobService
from launcher.durable.unreadable import FIRST_BACKOFF_S, MAX_BACKOFF_S
from launcher.errors import LaunchError
from launcher.job_records.durable_state import durable_directory, mark_ended
from launcher.job_records.job_lookup import all_jobs
from launcher.job_records.records import JobState
from launcher.subcommands import commands
from tests.launcher.durable.durable_jobs import LOCATION, Submit

NEVER = 10.0**9
DENIAL = "not authorized to perform: kms:Decrypt"


class NewMaster:
    """A service on a new master, and a bucket that denies one of two jobs until a time."""

    def __init__(self, bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.denied_until = NEVER
        self.code = "AccessDenied"
        self.asked_at: list[float] = []
        self.bucket = bucket
        self.denied, self.readable = (submit("--", name).job.id for name in ("a", "b"))
        for job_id in (self.denied, self.readable):
            mirror.remove(job_id)
        self._get = bucket._client.get_object
        monkeypatch.setattr(bucket._client, "get_object", self._get_object)
        self.service = DurableJobService(start=lambda _: None, is_running=lambda _: False, clock=lambda: self.now)
        self.service.fetch(bucket)

    def _get_object(self, **asked: str) -> Any:
        if self.denied in asked["Key"]:
            self.asked_at.append(self.now)
            if self.now < self.denied_until:
                raise ClientError({"Error": {"Code": self.code, "Message": DENIAL}}, "GetObject")
        return self._get(**asked)

    def pass_time(self, *, until: float) -> None:
        while self.now < until:
            self.now += 5
            self.service.fetch_unreadable(lambda: self.bucket)

    def open_jobs(self) -> list[str]:
        return [record.job.id for record in mirror.open_jobs()]


@pytest.fixture
def master(bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> NewMaster:
    return NewMaster(bucket, submit, monkeypatch)


def test_denied_job_is_listed_and_others_resume(master: NewMaster, capsys: pytest.CaptureFixture[str]) -> None:
    assert master.open_jobs() == [master.readable]
    assert {job.id: job.state for job in all_jobs()} == dict.fromkeys(
        (master.denied, master.readable), JobState.WAITING
    )
    commands.main(["list"])
    listed = capsys.readouterr().out.splitlines()
    [line] = [number for number, line in enumerate(listed) if line.startswith(f"{master.denied} WAITING ")]
    assert listed[line + 1].startswith("  waiting, its record cannot be read, next try at ")
    assert listed[line + 1].endswith(DENIAL)


def test_denied_job_is_retried_with_backoff_and_resumes(master: NewMaster) -> None:
    master.denied_until = 4 * MAX_BACKOFF_S
    master.pass_time(until=6 * MAX_BACKOFF_S)
    backoffs = [after - before for before, after in zip(master.asked_at, master.asked_at[1:], strict=False)]
    assert backoffs == [10, 20, 40, 80, 160, *[MAX_BACKOFF_S] * (len(backoffs) - 5)]
    assert len(backoffs) > 5
    assert sorted(master.open_jobs()) == sorted([master.denied, master.readable])
    assert [job.waiting for job in all_jobs()] == [None, None]


def test_denied_job_that_is_stopped_never_starts(master: NewMaster, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        commands.main(["stop", master.denied], end_durable=lambda job_id: mirror.close_job(job_id, master.bucket)) == 0
    )
    assert capsys.readouterr().out == f"{master.denied} CANCELLED\n"
    master.denied_until = 0
    master.pass_time(until=MAX_BACKOFF_S)
    assert master.open_jobs() == [master.readable]
    assert [record.job.id for record in master.bucket.read_records()[0]] == [master.readable]
    assert not durable_directory(master.denied).exists()
    assert [job.waiting for job in all_jobs() if job.id == master.denied] == [None]


def test_denied_job_ended_elsewhere_is_no_longer_listed(master: NewMaster) -> None:
    master.bucket.remove(master.denied)
    master.denied_until = 0
    master.pass_time(until=10)
    assert [job.id for job in all_jobs()] == [master.readable]


@pytest.mark.parametrize("code", ["KMS.DisabledException", "KMS.KMSInvalidStateException", "InvalidObjectState"])
def test_unreadable_record_does_not_block_other_jobs(master: NewMaster, code: str) -> None:
    master.code = code
    records, unreadable = master.bucket.read_records()
    assert [record.job.id for record in records] == [master.readable]
    assert [job.job_id for job in unreadable] == [master.denied]


def test_job_ending_during_the_read_is_skipped(master: NewMaster) -> None:
    master.code = "NoSuchKey"
    records, unreadable = master.bucket.read_records()
    assert ([record.job.id for record in records], unreadable) == ([master.readable], [])


def test_empty_job_directory_does_not_hide_the_stored_job(master: NewMaster) -> None:
    for job_id in (master.denied, master.readable):
        mirror.remove(job_id)
        durable_directory(job_id).mkdir()
    master.service = DurableJobService(start=lambda _: None, is_running=lambda _: False, clock=lambda: master.now)
    master.service.fetch(master.bucket)
    assert master.open_jobs() == [master.readable]
    assert mirror.unreadable_jobs() == [master.denied]
    master.denied_until = 0
    master.pass_time(until=FIRST_BACKOFF_S)
    assert sorted(master.open_jobs()) == sorted([master.denied, master.readable])


def test_full_disk_delays_durable_jobs_and_loses_none(master: NewMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    mirror.remove(master.denied)
    with monkeypatch.context() as full:
        full.setattr(mirror, "write_atomically", fail)
        with pytest.raises(OSError, match="No space"):
            master.service.fetch(master.bucket)
    master.service.fetch(master.bucket)
    assert mirror.unreadable_jobs() == [master.denied]
    master.denied_until = 0
    with monkeypatch.context() as full:
        full.setattr(mirror, "write_atomically", fail)
        with pytest.raises(OSError, match="No space"):
            master.pass_time(until=MAX_BACKOFF_S)
    master.pass_time(until=2 * MAX_BACKOFF_S)
    assert sorted(master.open_jobs()) == sorted([master.denied, master.readable])


def test_service_makes_one_call_at_a_time_while_s3_is_silent(
    master: NewMaster, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, connected = [], []

    def get(job_id: str) -> None:
        asked.append(job_id)
        raise LaunchError("cannot read the stored job: connect timeout")

    def connect() -> JobBucket:
        connected.append(1)
        return master.bucket

    for number in range(3):
        master.service._unreadable.add(f"20261123-10000{number}-000aaaa", DENIAL)
    monkeypatch.setattr(master.bucket, "get", get)
    master.now = FIRST_BACKOFF_S
    for _ in range(3):
        master.service.fetch_unreadable(connect)
    assert (len(asked), len(connected)) == (1, 1)
    monkeypatch.setattr(master.bucket, "get", lambda job_id: asked.append(job_id))
    master.now = 10 * FIRST_BACKOFF_S
    master.service.fetch_unreadable(connect)
    assert (len(asked), len(connected)) == (5, 2)


def test_unreadable_record_is_listed_and_its_job_can_be_stopped(master: NewMaster) -> None:
    job_id = "20261123-100000-000aaaa"
    key = f"jobs/team/durable/{job_id}.json"
    boto3.client("s3", region_name=LOCATION.region).put_object(Bucket=LOCATION.bucket, Key=key, Body=b"later release")
    master.service.fetch(master.bucket)
    [waiting] = [job.waiting for job in all_jobs() if job.id == job_id]
    assert "not the record of a durable job" in str(waiting)
    commands.main(["stop", job_id], end_durable=lambda job_id: mirror.close_job(job_id, master.bucket))
    assert [job.job_id for job in master.bucket.read_records()[1]] == [master.denied]


def test_deletions_wait_while_s3_does_not_answer(
    bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, remove = [], bucket.remove

    def fail(job_id: str) -> None:
        asked.append(job_id)
        raise LaunchError("cannot delete the job's record: connect timeout")

    for _ in range(2):
        mark_ended(submit("true").job.id)
    monkeypatch.setattr(service, "open_bucket", lambda: bucket)
    monkeypatch.setattr(bucket, "remove", fail)
    service.delete_ended()
    assert (len(asked), len(mirror.ended_jobs())) == (1, 2)
    monkeypatch.setattr(bucket, "remove", remove)
    service.delete_ended()
    assert (mirror.ended_jobs(), bucket.read_records()) == ([], ([], []))


class EndOfTestError(Exception):
    pass


@pytest.mark.parametrize("failing", ["log_pauses", "step", "delete_ended", "fetch_unreadable", "old_archives"])
def test_service_asks_s3_last_and_survives_failures(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    done: list[str] = []

    def record(name: str) -> None:
        done.append(name)
        if name == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    def sleep(_: float) -> None:
        raise EndOfTestError

    monkeypatch.setattr(service, "_fetch_when_possible", lambda service: None)
    monkeypatch.setattr(service, "read_bucket_location", lambda: LOCATION)
    monkeypatch.setenv("DEEPLEARNING_BUCKET", "bucket")
    monkeypatch.setattr(service, "log_pauses_of_open_jobs", lambda: record("log_pauses"))
    monkeypatch.setattr(DurableJobService, "step", lambda service: record("step"))
    monkeypatch.setattr(service, "delete_ended", lambda: record("delete_ended"))
    monkeypatch.setattr(DurableJobService, "fetch_unreadable", lambda service: record("fetch_unreadable"))
    monkeypatch.setattr(OldArchives, "step", lambda archives: record("old_archives"))
    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(EndOfTestError):
        service.serve()
    assert done == ["log_pauses", "step", "delete_ended", "fetch_unreadable", "old_archives"]
