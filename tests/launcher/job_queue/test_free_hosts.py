"""Test that a job on a part of the cluster starts on nodes that no other job has, and restarts there."""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import LaunchError
from launcher.history.records import JobRecord, State, write_record
from launcher.hosts.hostfile import Host, HostSource
from launcher.job.restarts import preferred
from launcher.job_queue.free_hosts import choose_free, hosts_of_others
from launcher.job_queue.turn import Ticket, start_in_turn, take_turn
from launcher.spec import Job, Wait
from tests.launcher.job_records import JOB, RECORD

NODES = ("one", "two", "three")
ME = "20261123-100009-000aaaa"
Others = Callable[..., None]


@pytest.fixture
def source(tmp_path: Path) -> HostSource:
    (tmp_path / "hosts").write_text("".join(f"{name} slots=2\n" for name in NODES))
    return HostSource(path=tmp_path / "hosts", slots=None, default_slots=1, of_cluster=True)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def others(jobs: Path) -> Iterator[Others]:
    """Write records of jobs whose launchers live, and one of the job itself."""
    with ExitStack() as stack:

        def write(*records: JobRecord) -> None:
            for record in (*records, replace(RECORD, id=ME, state=State.PENDING, hosts=("one",), gpus={})):
                directory = jobs / record.id
                directory.mkdir(parents=True)
                write_record(directory, record)
                lock = os.open(directory / "job.lock", os.O_RDWR | os.O_CREAT, 0o600)
                stack.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)

        yield write


def other(*hosts: str, number: int = 1, **values: Any) -> JobRecord:
    return replace(RECORD, id=f"20261123-10000{number}-000aaaa", state=State.RUNNING, hosts=hosts, **values)


def job(source: HostSource, *, nodes: int, wait: Wait | None = None) -> Job:
    return replace(JOB, hosts=source.read()[:nodes], host_source=source, wait=wait)


def names(found: Job) -> list[str]:
    return [host.name for host in found.hosts]


@pytest.mark.parametrize(
    ("taken", "nodes", "least", "chosen"),
    [
        ((), 1, None, ["one"]),
        (("one",), 1, None, ["two"]),
        (("one",), 2, None, ["two", "three"]),
        (("one", "three"), 2, None, ["one", "two"]),
        (("one", "three"), 2, 1, ["two"]),
        (("one",), 3, 1, ["one", "two", "three"]),
    ],
    ids=["all free", "next", "next two", "too few", "fewer are enough", "all nodes"],
)
def test_a_job_gets_the_first_free_nodes(
    source: HostSource, taken: tuple[str, ...], nodes: int, least: int | None, chosen: list[str]
) -> None:
    assert names(choose_free(job(source, nodes=nodes), RECORD, [other(*taken)], least=least)) == chosen


def test_a_node_with_free_gpus_is_free(source: HostSource) -> None:
    half = other("one", gpus={"one": ["2", "3"]})
    assert names(choose_free(job(source, nodes=1), RECORD, [half])) == ["one"]


def test_the_users_own_hosts_keep_their_order(source: HostSource) -> None:
    own = replace(source, of_cluster=False)
    assert names(choose_free(job(own, nodes=1), RECORD, [other("one")])) == ["one"]


def test_a_job_that_does_not_wait_takes_free_nodes_only_if_nobody_waits(
    source: HostSource, jobs: Path, others: Others
) -> None:
    waiting = other("one", "two", number=2, waits=True)
    others(other("one"))
    assert names(take_turn(job(source, nodes=1), ME, jobs=jobs)) == ["two"]
    for directory in jobs.iterdir():
        directory.rename(jobs.with_name(directory.name))
    others(other("one"), replace(waiting, state=State.WAITING))
    with pytest.raises(LaunchError, match=f"nothing started, job {waiting.id} "):
        take_turn(job(source, nodes=1), ME, jobs=jobs)


def test_a_job_in_line_starts_on_free_nodes_and_records_them(source: HostSource, jobs: Path, others: Others) -> None:
    others(other("one"))
    started: list[list[str]] = []

    class Observer:
        def on_turn(self, found: Job) -> None:
            started.append(names(found))

    ticket: Any = Ticket(job_id=ME, jobs=jobs, streams={}, observer=Observer())  # type: ignore[arg-type]

    async def start(found: Job, has_waited: bool) -> None:
        started.append(names(found))
        assert not has_waited

    wait = Wait(timeout_s=5, exclusive=True, nodes=(1, 1))
    asyncio.run(start_in_turn(job(source, nodes=1, wait=wait), ticket, start=start))
    assert started == [["two"], ["two"]]


def test_a_restart_prefers_the_jobs_own_nodes_then_free_ones(source: HostSource, jobs: Path, others: Others) -> None:
    others(other("one"))
    listed = source.read()
    mine = replace(JOB, hosts=(Host(name="three", slots=2),), host_source=source)
    taken = hosts_of_others(mine, ME, jobs=jobs)
    assert taken == {"one"}
    assert [host.name for host in preferred(mine, listed, taken)] == ["three", "two", "one"]
    alone = replace(mine, wait=Wait(timeout_s=5, exclusive=True, nodes=(1, 1)))
    assert [host.name for host in preferred(alone, listed, taken)] == ["three", "two"]
