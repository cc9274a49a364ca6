"""Test which archives of jobs' files are deleted, and when."""

import errno
import fcntl
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

from launcher.durable import mirror, old_archives, service
from launcher.durable.bucket import JobBucket
from launcher.durable.old_archives import KEPT, ROUND_INTERVAL_S, OldArchives, archives_in_use
from launcher.errors import LaunchError
from launcher.job_records.durable_state import DURABLE_DIR
from launcher.job_records.recorder import jobs_directory
from launcher.paths import LOCK_FILE
from tests.launcher.durable.durable_jobs import LOCATION, Submit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def submitted(home: Path, submit: Submit) -> dict[str, str]:
    """Submit two jobs with different files, of which the first has ended; return the archives' keys by state."""
    client, keys = boto3.client("s3", region_name=LOCATION.region), {}
    ended = ""
    for state in ("ended", "open"):
        (home / state).mkdir()
        (home / state / "train.py").write_text(f"print('{state}')")
        record = submit("--sync-dst-dir", "code", "train.py", cwd=home / state)
        keys[state] = f"jobs/team/files/{record.files}.tar.gz"
        ended = ended or record.job.id
    client.delete_object(Bucket=LOCATION.bucket, Key=f"jobs/team/durable/{ended}.json")
    mirror.remove(ended)
    return keys


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all archives be old."""
    monkeypatch.setattr(old_archives, "KEPT", -timedelta(hours=1))


def archives() -> set[str]:
    found = boto3.client("s3", region_name=LOCATION.region).list_objects_v2(
        Bucket=LOCATION.bucket, Prefix="jobs/team/files/"
    )
    return {item["Key"] for item in found.get("Contents", ())}


def test_old_archive_is_deleted_once_no_open_job_needs_it(bucket: JobBucket, submitted: dict[str, str]) -> None:
    now = datetime.now(timezone.utc)
    assert bucket.delete_files(before=now - KEPT) == 0
    assert archives() == set(submitted.values())
    assert bucket.delete_files(before=now + timedelta(hours=1)) == 1
    assert archives() == {submitted["open"]}


def test_no_archive_is_deleted_while_a_job_is_unreadable(bucket: JobBucket, submitted: dict[str, str]) -> None:
    client = boto3.client("s3", region_name=LOCATION.region)
    client.put_object(
        Bucket=LOCATION.bucket, Key="jobs/team/durable/20261123-100000-000aaaa.json", Body=b"later release"
    )
    with pytest.raises(LaunchError, match=r"^the files of some jobs are unknown: s3://bucket/jobs/team/durable/2026"):
        bucket.delete_files(before=datetime.now(timezone.utc) + timedelta(hours=1))
    assert archives() == set(submitted.values())


@pytest.mark.usefixtures("later")
def test_old_archives_are_looked_for_once_a_day(
    bucket: JobBucket, submitted: dict[str, str], home: Path, submit: Submit
) -> None:
    clock = Clock()
    cleanup = OldArchives(clock=clock)
    cleanup.step(lambda: bucket)
    assert archives() == {submitted["open"]}
    again = submit("--sync-dst-dir", "code", "train.py", cwd=home / "ended").job.id
    mirror.close_job(again, bucket)
    counts = []
    for clock.now in (ROUND_INTERVAL_S - 1, ROUND_INTERVAL_S):
        cleanup.step(lambda: bucket)
        counts.append(len(archives()))
    assert counts == [2, 1]


@pytest.mark.usefixtures("later")
def test_archive_is_kept_for_a_job_being_submitted(bucket: JobBucket, submitted: dict[str, str]) -> None:
    clock = Clock()
    cleanup = OldArchives(clock=clock)
    with archives_in_use(), archives_in_use():
        cleanup.step(lambda: bucket)
        assert archives() == set(submitted.values())
    clock.now = 60
    cleanup.step(lambda: bucket)
    assert archives() == {submitted["open"]}


def test_submission_waits_for_the_service_that_deletes_archives(
    submitted: dict[str, str], submit: Submit, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_archives, "LOCK_TIMEOUT_S", 0.0)
    monkeypatch.setattr(old_archives, "POLL_S", 0.001)
    lock = os.open(home / DURABLE_DIR / old_archives.LOCK, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LaunchError, match=r"^waited 0 s for the service that deletes old archives"):
            submit("true")
    finally:
        os.close(lock)


@pytest.mark.usefixtures("later")
def test_missing_file_locks_do_not_end_the_service(
    bucket: JobBucket,
    submitted: dict[str, str],
    submit: Submit,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = submit("true")
    mirror.write_waiting_record(record, jobs_directory())
    (jobs_directory() / record.job.id / LOCK_FILE).touch()

    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    OldArchives(clock=Clock()).step(lambda: bucket)
    assert "archives.lock cannot be locked: No locks available" in caplog.text
    assert archives() == set(submitted.values())
    with pytest.raises(LaunchError, match=r"archives\.lock cannot be locked: No locks available$"):
        submit("true")
    assert service.is_running(record.job.id)
    mirror.remove(record.job.id)
    assert mirror.add_if_unknown(record)
    assert not mirror.add_if_unknown(record)


@pytest.mark.usefixtures("later")
def test_archive_of_a_locally_open_job_is_kept(bucket: JobBucket, submitted: dict[str, str]) -> None:
    for record in mirror.open_jobs():
        bucket.remove(record.job.id)
    OldArchives(clock=Clock()).step(lambda: bucket)
    assert archives() == {submitted["open"]}


def test_archives_are_deleted_in_one_call_and_refused_ones_are_counted(
    bucket: JobBucket, submitted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def delete_objects(**asked: Any) -> dict[str, Any]:
        calls.append([item["Key"] for item in asked["Delete"]["Objects"]])
        return {"Errors": [{"Key": submitted["ended"], "Code": "AccessDenied"}]}

    for record in mirror.open_jobs():
        bucket.remove(record.job.id)
    monkeypatch.setattr(bucket._client, "delete_objects", delete_objects)
    refused = rf"^1 of 2 old archives cannot be deleted: s3://bucket/{submitted['ended']}: AccessDenied$"
    with pytest.raises(LaunchError, match=refused):
        bucket.delete_files(before=datetime.now(timezone.utc) + timedelta(hours=1))
    assert [sorted(keys) for keys in calls] == [sorted(submitted.values())]
