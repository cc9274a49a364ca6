"""Provide a user's home on a master, and the cluster's bucket in memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from launcher.durable.bucket import JobBucket
from launcher.durable.record import DurableRecord
from launcher.durable.submit import store
from tests.launcher.durable.durable_jobs import LOCATION, Submit, durable_job


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobBucket]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        client = boto3.client("s3", region_name=LOCATION.region)
        client.create_bucket(Bucket=LOCATION.bucket)
        yield JobBucket(client, LOCATION)


@pytest.fixture
def submit(home: Path, bucket: JobBucket) -> Submit:
    """Store a job like ``launch --durable``; `start` is the time of its submission."""

    def run(*words: str, start: str | None = None, user: str | None = None, cwd: Path = home) -> DurableRecord:
        job, arguments = durable_job(*words, home=home)
        record = store(job, arguments, cwd=str(cwd), bucket=bucket)
        known = replace(record.job, submitted_at=start or record.job.submitted_at, user=user or record.job.user)
        record = replace(record, job=known)
        bucket.put(record)
        return record

    return run
