"""Test which jobs are ahead of which, and which job uses whose nodes."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.job_queue.queue import conflicting_jobs, jobs_ahead_of, jobs_overtaken_by, live_jobs
from launcher.job_records.records import JobRecord, JobState, write_record
from tests.launcher.example_job import RECORD

WriteRecord = Callable[..., JobRecord]


def job(number: int, state: JobState = JobState.WAITING, *, waits: bool = True, **values: Any) -> JobRecord:
    """Return the record of a job submitted in this second."""
    start = f"2026-11-23T10:00:{number:02}Z"
    return replace(
        RECORD, id=f"20261123-1000{number:02}-000aaaa", submitted_at=start, state=state, waits=waits, **values
    )


def ids(jobs: list[JobRecord]) -> list[str]:
    return [job.id[13:15] for job in jobs]


def test_earlier_waiting_jobs_are_ahead_on_any_nodes() -> None:
    others = [
        job(1, hosts=("three",)),
        job(2, JobState.RUNNING),
        job(3, JobState.PENDING),
        job(7),
        job(6, JobState.PENDING),
    ]
    assert ids(jobs_ahead_of(job(5), others)) == ["01", "03"]


def test_resumed_durable_job_keeps_its_place() -> None:
    taken_up = replace(job(1), id=job(9).id)
    assert (ids(jobs_ahead_of(job(5), [taken_up])), jobs_ahead_of(taken_up, [job(5)])) == (["09"], [])


def test_starting_job_without_wait_is_ahead_on_its_nodes_only() -> None:
    others = [job(1, JobState.PENDING, waits=False), job(2, JobState.PENDING, waits=False, hosts=("three",))]
    assert ids(jobs_ahead_of(job(5), others)) == ["01"]


@pytest.mark.parametrize(
    ("gpus", "shares"),
    [({}, True), ({"two": None}, True), ({"two": ["1"]}, True), ({"two": ["2", "3"]}, False), ({"two": []}, False)],
)
def test_running_job_holds_nodes_with_the_same_gpus(gpus: dict[str, list[str] | None], *, shares: bool) -> None:
    me = job(5, hosts=("one", "two"), gpus={"one": ["0"], "two": ["0", "1"]})
    other = job(7, JobState.RUNNING, hosts=("two", "three"), gpus=gpus)
    assert bool(conflicting_jobs(me, [other])) is shares
    assert not conflicting_jobs(me, [replace(other, state=JobState.PENDING), replace(other, hosts=("three",))])


def test_starting_job_keeps_its_nodes_in_any_order() -> None:
    starting = [job(7, state, starting=True) for state in (JobState.PENDING, JobState.WAITING)]
    assert conflicting_jobs(job(5), [*starting, job(8), job(9, starting=True, hosts=("three",))]) == starting
    assert jobs_overtaken_by(job(5, JobState.PENDING, waits=False), [*starting, job(8)]) == starting


def test_job_without_wait_overtakes_no_job_on_its_nodes() -> None:
    me = job(5, JobState.PENDING, waits=False)
    others = [job(4), job(6), job(3, hosts=("three",)), job(2, JobState.PENDING, waits=False)]
    assert ids(jobs_overtaken_by(me, others)) == ["04"]


@pytest.fixture
def write_job_record(tmp_path: Path) -> Iterator[WriteRecord]:
    """Write a record; if the launcher lives, hold the job's lock in its place."""
    with ExitStack() as stack:

        def write(record: JobRecord, *, lives: bool) -> JobRecord:
            directory = tmp_path / record.id
            directory.mkdir()
            write_record(directory, record)
            lock = os.open(directory / "job.lock", os.O_RDWR | os.O_CREAT, 0o600)
            stack.callback(os.close, lock)
            if lives:
                fcntl.flock(lock, fcntl.LOCK_EX)
            return record

        yield write


def test_job_whose_launcher_died_loses_its_place(write_job_record: WriteRecord, tmp_path: Path) -> None:
    write_job_record(job(1), lives=False)
    write_job_record(job(2, JobState.SUCCEEDED), lives=True)  # it is uploading its record
    alive = write_job_record(job(3), lives=True)
    assert live_jobs(tmp_path) == [alive]
