"""Test that a job on a part of the cluster starts on nodes that no other job has, and restarts there."""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.errors import LaunchError
from launcher.frameworks import LAUNCHED_BY_MPI
from launcher.hosts.hostfile import Host, HostSource
from launcher.job import restarts
from launcher.job_queue.allocation import HostAllocator, QueueContext, select_nodes
from launcher.job_queue.free_hosts import select_free_nodes
from launcher.job_records.records import JobRecord, JobState, write_record
from launcher.recorded_run import allocate_and_run
from launcher.spec import JobSpec, NodeRange, QueuePolicy, RestartPolicy
from launcher.transport.protocol import FrameType
from tests.launcher.example_job import JOB, RECORD

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

        def write(*records: JobRecord, own: tuple[str, ...] = ("one",)) -> None:
            for record in (*records, replace(RECORD, id=ME, state=JobState.PENDING, hosts=own, gpus={})):
                directory = jobs / record.id
                directory.mkdir(parents=True)
                write_record(directory, record)
                lock = os.open(directory / "job.lock", os.O_RDWR | os.O_CREAT, 0o600)
                stack.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)

        yield write


def other(*hosts: str, number: int = 1, **values: Any) -> JobRecord:
    return replace(RECORD, id=f"20261123-10000{number}-000aaaa", state=JobState.RUNNING, hosts=hosts, **values)


def job(source: HostSource, *, nodes: int, policy: QueuePolicy | None = None) -> JobSpec:
    return replace(JOB, hosts=source.read()[:nodes], host_source=source, queue_policy=policy)


def names(found: JobSpec) -> list[str]:
    return [host.name for host in found.hosts]


@pytest.mark.parametrize(
    ("taken", "nodes", "chosen"),
    [
        ((), 1, ["one"]),
        (("one",), 1, ["two"]),
        (("one",), 2, ["two", "three"]),
        (("one", "three"), 2, ["one", "two"]),
        (("one",), 3, ["one", "two", "three"]),
    ],
    ids=["all free", "next", "next two", "too few", "all nodes"],
)
def test_job_gets_the_first_free_nodes(
    source: HostSource, taken: tuple[str, ...], nodes: int, chosen: list[str]
) -> None:
    assert names(select_free_nodes(job(source, nodes=nodes), RECORD, [other(*taken)])) == chosen


def test_mpirun_keeps_its_own_machine_as_the_first_of_several(source: HostSource) -> None:
    mpi = replace(job(source, nodes=2), framework=LAUNCHED_BY_MPI)
    assert names(select_free_nodes(mpi, RECORD, [other("one")])) == ["one", "two"]


def test_node_with_free_gpus_is_free(source: HostSource) -> None:
    half = other("one", gpus={"one": ["2", "3"]})
    assert names(select_free_nodes(job(source, nodes=1), RECORD, [half])) == ["one"]


def test_users_own_hosts_keep_their_order(source: HostSource) -> None:
    own = replace(source, of_cluster=False)
    assert names(select_free_nodes(job(own, nodes=1), RECORD, [other("one")])) == ["one"]


def test_job_without_wait_takes_free_nodes_only_if_no_job_waits(source: HostSource, jobs: Path, others: Others) -> None:
    small = replace(job(source, nodes=1), has_gpus=True)
    others(other("one"))
    assert names(select_nodes(small, ME, jobs_dir=jobs)) == ["two"]
    assert names(select_nodes(replace(small, has_gpus=False), ME, jobs_dir=jobs)) == ["one"]
    for directory in jobs.iterdir():
        directory.rename(jobs.with_name(directory.name))
    waiting = replace(other("one", "two", number=2, waits=True), state=JobState.WAITING)
    others(other("one"), waiting)
    with pytest.raises(LaunchError, match=f"nothing started: job {waiting.id} "):
        select_nodes(small, ME, jobs_dir=jobs)


def test_job_leaving_the_queue_does_not_limit_the_choice_of_others(
    source: HostSource, jobs: Path, others: Others
) -> None:
    others(replace(other("one", waits=True), state=JobState.WAITING, starting=True))
    assert names(select_nodes(replace(job(source, nodes=1), has_gpus=True), ME, jobs_dir=jobs)) == ["two"]


@pytest.mark.parametrize(
    ("least", "most", "nodes", "line"),
    [
        (1, 1, ["two"], "1 node: two, because other jobs are using the earlier hosts in the file"),
        (1, 3, ["two", "three"], "2 of 3 nodes: two, three, because other jobs are using the remaining nodes"),
    ],
    ids=["one node", "one to three"],
)
def test_queued_job_starts_on_free_nodes_and_records_them(
    source: HostSource, jobs: Path, others: Others, least: int, most: int, nodes: list[str], line: str
) -> None:
    others(other("one"))
    started: list[list[str]] = []

    class Observer:
        def on_allocated(self, found: JobSpec) -> None:
            started.append(names(found))

    class Terminal:
        async def send(self, data: bytes) -> None:
            lines.append(data.decode())

    lines: list[str] = []
    streams: Any = {FrameType.STDERR: Terminal()}
    queue_context = QueueContext(job_id=ME, jobs_dir=jobs, streams=streams, observer=Observer())  # type: ignore[arg-type]

    async def start(found: JobSpec, has_waited: bool) -> None:
        started.append(names(found))
        assert not has_waited

    policy = QueuePolicy(timeout_s=60, exclusive=True, nodes=NodeRange(min=least, max=most))
    asyncio.run(allocate_and_run(job(source, nodes=most, policy=policy), queue_context, run_on_nodes=start))
    assert started == [nodes, nodes]
    assert lines == [f"launch: starting on {line}\n"]


@pytest.mark.parametrize(
    ("change", "tried", "left_out"),
    [
        ({}, ["three", "two", "one"], 0),
        ({"has_gpus": True}, ["three", "two"], 1),
        ({"queue_policy": QueuePolicy(timeout_s=60, exclusive=True)}, ["three", "two"], 1),
        ({"has_gpus": True, "force": True}, ["three", "two", "one"], 0),
    ],
    ids=["shares", "GPUs", "waited", "force"],
)
def test_restart_tries_the_jobs_own_nodes_then_free_ones(
    source: HostSource, jobs: Path, others: Others, change: dict[str, Any], tried: list[str], left_out: int
) -> None:
    others(other("one"), own=("three",))
    allocator = HostAllocator(ME, jobs_dir=jobs, record=lambda _job: None)
    # It was submitted for another node, and has restarted since.
    hosts, reasons = allocator.usable_hosts(replace(job(source, nodes=1), **change), source.read())
    assert [host.name for host in hosts] == tried
    assert reasons == [f"one: job {other().id} has it"] * left_out


@pytest.mark.parametrize(
    ("taken", "has_gpus", "tried", "left_out"),
    [
        ("two", True, ["one", "three"], "two: job {} has it"),
        ("one", True, [], "one: job {} has it, and mpirun runs there"),
        ("one", False, ["one", "two", "three"], None),
    ],
    ids=["another node", "its own machine", "shares"],
)
def test_restart_of_mpirun_leaves_out_other_jobs_nodes_and_begins_with_its_own_machine(
    source: HostSource,
    jobs: Path,
    others: Others,
    taken: str,
    tried: list[str],
    left_out: str | None,
    *,
    has_gpus: bool,
) -> None:
    others(other(taken), own=("one", "two"))
    allocator = HostAllocator(ME, jobs_dir=jobs, record=lambda _job: None)
    mpi = replace(job(source, nodes=2), framework=LAUNCHED_BY_MPI, has_gpus=has_gpus)
    hosts, reasons = allocator.usable_hosts(mpi, source.read())
    assert [host.name for host in hosts] == tried
    assert reasons == ([] if left_out is None else [left_out.format(other().id)])


@pytest.mark.parametrize("has_gpus", [True, False], ids=["GPUs", "shares"])
def test_restart_of_mpirun_uses_no_node_while_its_own_machine_is_not_listed(
    source: HostSource, jobs: Path, others: Others, *, has_gpus: bool
) -> None:
    others(own=("one", "two"))
    allocator = HostAllocator(ME, jobs_dir=jobs, record=lambda _job: None)
    mpi = replace(job(source, nodes=2), framework=LAUNCHED_BY_MPI, has_gpus=has_gpus)
    assert allocator.usable_hosts(mpi, source.read()[1:]) == ([], ["one: not in the hosts file, and mpirun runs there"])
    assert allocator.usable_hosts(mpi, ()) == ([], [])
    by_torch = allocator.usable_hosts(replace(mpi, framework="torch"), source.read()[1:]).hosts
    assert [host.name for host in by_torch] == ["two", "three"]


def test_restart_does_not_take_its_own_node_back_from_another_job(
    source: HostSource, jobs: Path, others: Others
) -> None:
    others(other("one"), own=("one",))
    taken: list[list[str]] = []
    allocator = HostAllocator(ME, jobs_dir=jobs, record=lambda found: taken.append(names(found)))
    again = replace(job(source, nodes=1), has_gpus=True)
    assert [host.name for host in allocator.usable_hosts(again, source.read()).hosts] == ["two", "three"]
    assert asyncio.run(allocator.allocate(again)) == f"job {other().id} has taken a node"
    assert asyncio.run(allocator.allocate(again.with_hosts(source.read()[1:2]))) == ""
    assert taken == [["two"]]


@pytest.mark.parametrize(
    ("rejoin_timeout_s", "left"), [(60, NODES), (0, NODES[1:])], ids=["in time", "at the deadline"]
)
def test_restart_whose_nodes_another_job_takes_first_tries_again(
    source: HostSource, monkeypatch: pytest.MonkeyPatch, rejoin_timeout_s: int, left: tuple[str, ...]
) -> None:
    class Allocator:
        tries = 0

        def usable_hosts(self, _job: JobSpec, listed: Sequence[Host]) -> restarts.UsableHosts:
            hosts = [*listed[1:], listed[0]]
            return restarts.UsableHosts([host for host in hosts if host.name in left or not self.tries], [])

        async def allocate(self, _job: JobSpec) -> str:
            self.tries += 1
            return "job x has taken a node" if self.tries == 1 else ""

    class Connection:
        def __init__(self, host: Host) -> None:
            self.host = host

    async def connect(hosts: Sequence[Host], **_: object) -> tuple[list[Connection], list[str]]:
        return [Connection(host) for host in hosts], []

    async def no_framework_is_lacking(_job: JobSpec, _connections: object) -> tuple[str, list[Connection]]:
        return "", []

    async def close(connections: Sequence[Connection]) -> None:
        closed.extend(connection.host.name for connection in connections)

    closed: list[str] = []
    monkeypatch.setattr(restarts, "connect_available", connect)
    monkeypatch.setattr(restarts, "nodes_without_framework", no_framework_is_lacking)
    monkeypatch.setattr(restarts, "close_connections", close)
    monkeypatch.setattr(restarts, "RETRY_S", 0.0)
    streams: Any = {FrameType.STDOUT: SimpleNamespace(reader_has_gone=lambda: False)}
    again = replace(job(source, nodes=3), restart_policy=RestartPolicy(rejoin_timeout_s=rejoin_timeout_s))
    found = asyncio.run(restarts.gather_nodes(again, streams, Allocator()))
    assert [connection.host.name for connection in found.connections] == [*left]  # in the order of the list
    assert sorted(closed) == sorted(NODES)
