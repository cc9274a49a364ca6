"""Test which jobs an announcement names, from records that any process of the login user can write."""

import fcntl
import json
import os
import pwd
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest

from bootstrap.idle.notice import Notices
from bootstrap.idle.pause_record import PauseRecord
from bootstrap.jobs.checkpoints_at_risk import RECORD, JobsAtRisk, find_jobs_at_risk
from bootstrap.jobs.job_directories import JOBS
from launcher.job_records import records

USER = pwd.getpwuid(os.getuid())
LOCAL = json.dumps({"local_checkpoints": True})


def test_running_jobs_whose_checkpoints_may_be_lost_are_listed(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    jobs = tmp_path / USER.pw_dir.lstrip("/") / JOBS
    given = {
        "20261123-100000-000aaaa": LOCAL,
        "20261123-100001-000aaaa": json.dumps({"local_checkpoints": False}),
        "20261123-100002-000aaaa": "[" * 100_000,
        "20261123-100003-000aaaa": LOCAL,  # over
        "20261123-100005-000aaaa": json.dumps({"local_checkpoints": False, "unknown_checkpoints": True}),
        "20261123-100004-000aaaa": "",  # a pipe
        "\x1b[2J": LOCAL,
    }
    assert find_jobs_at_risk(tmp_path, USER.pw_name) == JobsAtRisk([], [])
    for name, text in given.items():
        (jobs / name).mkdir(parents=True)
        (jobs / name / RECORD).write_text(text) if text else os.mkfifo(jobs / name / RECORD)
        if "-100003-" not in name:
            lock = os.open(jobs / name, os.O_RDONLY)
            request.addfinalizer(partial(os.close, lock))
            fcntl.flock(lock, fcntl.LOCK_SH)
    found = JobsAtRisk(local=["20261123-100000-000aaaa"], unknown=["20261123-100005-000aaaa"])
    assert find_jobs_at_risk(tmp_path, USER.pw_name) == found
    assert find_jobs_at_risk(tmp_path, "nobody-of-this-name") == JobsAtRisk([], [])
    assert records.RECORD_FILE == RECORD


def test_expiry_notice_lists_jobs_whose_checkpoints_may_be_lost() -> None:
    message: list[str] = []
    now = datetime(2026, 11, 23, 10, tzinfo=timezone.utc)
    record = PauseRecord(expires=now + timedelta(minutes=10))
    losses = [JobsAtRisk([], []), JobsAtRisk(["one", "two"], ["three"]), JobsAtRisk([], ["three"])]
    for jobs in losses:
        Notices(message.append, find_jobs_at_risk=partial(JobsAtRisk, *jobs)).follow(record, now=now)
    lost = ". The checkpoints of these jobs will be lost: one, two"
    unknown = ". It is unknown whether the checkpoints of job three are in S3 or the shared directory"
    assert message[0].endswith("dlcluster extend 8h postpones it")
    assert message[1:] == [f"{message[0]}{lost}{unknown}", f"{message[0]}{unknown}"]
