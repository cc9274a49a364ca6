"""Test how a job that is refused names the job that has its nodes."""

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.errors import BusyError
from launcher.hosts.hostfile import Host
from launcher.job_queue.allocation import select_nodes
from launcher.job_records.recorder import JobRecorder, jobs_directory, user_name
from tests.launcher.example_job import JOB


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [
        (None, None, f"in use by job one of {user_name()}"),
        ("baseline", None, f"in use by job one 'baseline' of {user_name()}"),
        ("baseline", "anna", "in use by job one 'baseline' of anna"),
    ],
)
def test_job_on_the_nodes_is_named_with_its_own_name_and_the_key_that_started_it(
    name: str | None, key: str | None, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    job = replace(JOB, hosts=(Host(name="a", slots=2),), has_gpus=True)
    holder = JobRecorder(replace(job, name=name), job_id="one", cwd="/", started_by=key)
    holder.begin()
    holder.on_allocated(job)
    JobRecorder(job, job_id="two", cwd="/").begin()
    with pytest.raises(BusyError) as refused:
        select_nodes(job, "two", jobs_dir=jobs_directory())
    assert refused.value.detail == shown
