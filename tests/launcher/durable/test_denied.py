"""Test that a job whose record S3 denies is listed, read again, and can be stopped."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from launcher.durable import mirror
from launcher.durable.bucket import JobBucket
from launcher.durable.denied import LONGEST_PAUSE_S
from launcher.durable.take_up import Service
from launcher.durable_state import directory_of
from launcher.history import commands
from launcher.history.job_lookup import all_jobs
from launcher.history.records import State
from tests.launcher.durable.conftest import Submit

NEVER = 10.0**9
DENIAL = "not authorized to perform: kms:Decrypt"


class NewMaster:
    """A service on a new master, and a bucket that denies one of two jobs until a time."""

    def __init__(self, bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.denied_until = NEVER
        self.asked_at: list[float] = []
        self.bucket = bucket
        self.denied, self.readable = (submit("--", name).job.id for name in ("a", "b"))
        for job_id in (self.denied, self.readable):
            mirror.remove(job_id)
        self._get = bucket._client.get_object
        monkeypatch.setattr(bucket._client, "get_object", self._get_object)
        self.service = Service(start=lambda _: None, is_running=lambda _: False, clock=lambda: self.now)
        self.service.fetch(bucket)

    def _get_object(self, **asked: str) -> Any:
        if self.denied in asked["Key"]:
            self.asked_at.append(self.now)
            if self.now < self.denied_until:
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": DENIAL}}, "GetObject")
        return self._get(**asked)

    def pass_time(self, *, until: float) -> None:
        while self.now < until:
            self.now += 5
            self.service.fetch_denied(lambda: self.bucket)

    def open_jobs(self) -> list[str]:
        return [record.job.id for record in mirror.open_jobs()]


@pytest.fixture
def master(bucket: JobBucket, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> NewMaster:
    return NewMaster(bucket, submit, monkeypatch)


def test_a_job_that_s3_denies_is_listed_with_the_reason_and_others_are_taken_up(
    master: NewMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert master.open_jobs() == [master.readable]
    assert {job.id: job.state for job in all_jobs()} == dict.fromkeys((master.denied, master.readable), State.WAITING)
    commands.main(["list"])
    listed = capsys.readouterr().out.splitlines()
    [line] = [number for number, line in enumerate(listed) if line.startswith(f"{master.denied} WAITING ")]
    assert listed[line + 1].startswith("  waiting, its record cannot be read, next try at ")
    assert listed[line + 1].endswith(DENIAL)


def test_a_denied_job_is_read_again_after_growing_pauses_and_taken_up(master: NewMaster) -> None:
    master.denied_until = 4 * LONGEST_PAUSE_S
    master.pass_time(until=6 * LONGEST_PAUSE_S)
    pauses = [after - before for before, after in zip(master.asked_at, master.asked_at[1:], strict=False)]
    assert pauses == [10, 20, 40, 80, 160, *[LONGEST_PAUSE_S] * (len(pauses) - 5)]
    assert len(pauses) > 5
    assert sorted(master.open_jobs()) == sorted([master.denied, master.readable])
    assert [job.waiting for job in all_jobs()] == [None, None]


def test_a_denied_job_that_is_stopped_never_starts(master: NewMaster, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        commands.main(["stop", master.denied], end_durable=lambda job_id: mirror.close_job(job_id, master.bucket)) == 0
    )
    assert capsys.readouterr().out == f"{master.denied} CANCELLED\n"
    master.denied_until = 0
    master.pass_time(until=LONGEST_PAUSE_S)
    assert master.open_jobs() == [master.readable]
    assert [record.job.id for record in master.bucket.all()[0]] == [master.readable]
    assert not directory_of(master.denied).exists()


def test_a_denied_job_that_another_has_ended_is_listed_no_more(master: NewMaster) -> None:
    master.bucket.remove(master.denied)
    master.denied_until = 0
    master.pass_time(until=10)
    assert [job.id for job in all_jobs()] == [master.readable]
