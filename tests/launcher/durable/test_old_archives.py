"""Test which archives of jobs' files are deleted, and when."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import boto3
import pytest

from launcher.durable import mirror, old_archives
from launcher.durable.bucket import JobBucket
from launcher.durable.old_archives import KEPT, ROUND_S, OldArchives, archives_in_use
from launcher.errors import LaunchError
from tests.launcher.durable.conftest import PLACE, Submit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def submitted(home: Path, submit: Submit) -> dict[str, str]:
    """Submit two jobs with different files, of which the first has ended; return the archives' keys by state."""
    client, keys = boto3.client("s3", region_name=PLACE.region), {}
    ended = ""
    for state in ("ended", "open"):
        (home / state).mkdir()
        (home / state / "train.py").write_text(f"print('{state}')")
        record = submit("--sync-dst-dir", "code", "train.py", cwd=home / state)
        keys[state] = f"jobs/team/files/{record.files}.tar.gz"
        ended = ended or record.job.id
    client.delete_object(Bucket=PLACE.bucket, Key=f"jobs/team/durable/{ended}.json")
    mirror.remove(ended)
    return keys


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all archives be old."""
    monkeypatch.setattr(old_archives, "KEPT", -timedelta(hours=1))


def archives() -> set[str]:
    found = boto3.client("s3", region_name=PLACE.region).list_objects_v2(Bucket=PLACE.bucket, Prefix="jobs/team/files/")
    return {each["Key"] for each in found.get("Contents", ())}


def test_an_old_archive_goes_once_no_open_job_needs_it(bucket: JobBucket, submitted: dict[str, str]) -> None:
    now = datetime.now(timezone.utc)
    assert bucket.delete_files(before=now - KEPT) == 0
    assert archives() == set(submitted.values())
    assert bucket.delete_files(before=now + timedelta(hours=1)) == 1
    assert archives() == {submitted["open"]}


def test_none_goes_while_a_stored_job_cannot_be_read(bucket: JobBucket, submitted: dict[str, str]) -> None:
    client = boto3.client("s3", region_name=PLACE.region)
    client.put_object(Bucket=PLACE.bucket, Key="jobs/team/durable/20261123-100000-000aaaa.json", Body=b"later release")
    with pytest.raises(LaunchError, match=r"^the files of some jobs are unknown: s3://bucket/jobs/team/durable/2026"):
        bucket.delete_files(before=datetime.now(timezone.utc) + timedelta(hours=1))
    assert archives() == set(submitted.values())


@pytest.mark.usefixtures("later")
def test_the_service_looks_once_a_day(bucket: JobBucket, submitted: dict[str, str], home: Path, submit: Submit) -> None:
    clock = Clock()
    service = OldArchives(clock=clock)
    service.step(lambda: bucket)
    assert archives() == {submitted["open"]}
    again = submit("--sync-dst-dir", "code", "train.py", cwd=home / "ended").job.id
    mirror.close_job(again, bucket)
    counts = []
    for clock.now in (ROUND_S - 1, ROUND_S):
        service.step(lambda: bucket)
        counts.append(len(archives()))
    assert counts == [2, 1]


@pytest.mark.usefixtures("later")
def test_an_archive_stays_while_a_job_is_submitted_that_may_need_it(
    bucket: JobBucket, submitted: dict[str, str]
) -> None:
    clock = Clock()
    service = OldArchives(clock=clock)
    with archives_in_use(), archives_in_use():
        service.step(lambda: bucket)
        assert archives() == set(submitted.values())
    clock.now = 60
    service.step(lambda: bucket)
    assert archives() == {submitted["open"]}
