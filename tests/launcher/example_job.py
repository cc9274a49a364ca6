"""Provide a job, and a record of one, for tests."""

from launcher.hosts.hostfile import Host
from launcher.job_records.records import JobRecord, JobState
from launcher.spec import JobSpec

RECORD = JobRecord(
    id="20261122-000000-aaaaaa",
    state=JobState.RUNNING,
    command=("python", "x"),
    hosts=("one", "two"),
    framework="torch",
    cwd="/",
    user="u",
    pid=1,
    submitted_at="2026-11-22T00:00:00Z",
)
JOB = JobSpec(hosts=(Host(name="a"),), is_local=False, framework="torch", servers=0, environment={}, command=("x",))
