"""Test how jobs wait in the queue and leave it, with launchers in this process."""

import asyncio
import fcntl
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import BusyError, LaunchError, QueueTimeoutError
from launcher.hosts.hostfile import Host, HostSource
from launcher.job.failure import Failure
from launcher.job.gpu_check import check_gpus
from launcher.job_queue import queue_wait
from launcher.job_queue.allocation import QueueContext
from launcher.job_queue.queue_wait import with_current_hosts
from launcher.job_records.recorder import JobRecorder, jobs_directory, user_name
from launcher.job_records.records import read_record
from launcher.recorded_run import allocate_and_run
from launcher.spec import JobSpec, NodeRange, QueuePolicy
from launcher.transport.gpus_in_use import GpuProcess, GpusInUse
from launcher.transport.protocol import FrameType
from tests.launcher.example_job import JOB

WAITING = replace(JOB, hosts=(Host(name="a", slots=1),), queue_policy=QueuePolicy(timeout_s=60, exclusive=True))
LIMIT_S = 60.0
YEAR_S = 365 * 86400.0
REFUSED = f"nothing started: GPUs are in use by job one of {user_name()} (--wait queues the job, --force starts anyway)"


class Terminal:
    """A terminal that accepts every line, or that is blocked."""

    def __init__(self, *, is_blocked: bool = False) -> None:
        self._is_blocked = is_blocked

    async def send(self, _data: bytes) -> None:
        if self._is_blocked:
            await asyncio.Event().wait()

    def reader_has_gone(self) -> bool:
        return False


Begin = Callable[..., tuple[JobRecorder, QueueContext]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(queue_wait, "POLL_S", 0.01)

    def run(
        name: str,
        *,
        start: str,
        terminal: Any = Terminal(),  # noqa: B008  # no state
        job: JobSpec = WAITING,
    ) -> tuple[JobRecorder, QueueContext]:
        recorder = JobRecorder(job, job_id=name, cwd="/", submitted_at=start)
        recorder.begin()
        streams: dict[int, Any] = {FrameType.STDOUT: terminal, FrameType.STDERR: terminal}
        return recorder, QueueContext(job_id=name, jobs_dir=jobs_directory(), streams=streams, observer=recorder)

    return run


def waiting(name: str) -> str:
    record = read_record(jobs_directory() / name)
    assert record is not None
    return record.waiting or ""


def test_earlier_job_waits_for_one_already_starting(begin: Begin) -> None:
    """This covers a durable job that restarts, a clock that was set back, and two simultaneous requests."""
    events: list[str] = []

    async def run() -> None:
        later, queue_context = begin("later", start="2026-11-23T10:00:09Z")
        starts, may_end = asyncio.Event(), asyncio.Event()

        async def start_later(_job: object, _has_waited: object) -> None:
            starts.set()
            await may_end.wait()
            events.append("later has started")
            later.on_end(None)

        async def start_earlier(_job: object, _has_waited: object) -> None:
            events.append("earlier starts")

        tasks = [asyncio.ensure_future(allocate_and_run(WAITING, queue_context, run_on_nodes=start_later))]
        await starts.wait()
        _, queue_context = begin("earlier", start="2026-11-23T10:00:01Z")
        tasks.append(asyncio.ensure_future(allocate_and_run(WAITING, queue_context, run_on_nodes=start_earlier)))
        while not events and "in use by" not in waiting("earlier"):
            await asyncio.sleep(0.01)
        may_end.set()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))
    assert events == ["later has started", "earlier starts"]


@pytest.mark.parametrize("job", [WAITING, JOB], ids=["waits", "does not wait"])
def test_jobs_take_turns_one_at_a_time(begin: Begin, job: Any) -> None:
    started: list[bool] = []

    async def start(_job: object, _has_waited: object) -> None:
        record = read_record(jobs_directory() / "one")
        assert record is not None
        started.append(record.starting)

    async def run() -> None:
        _, queue_context = begin("one", start="2026-11-23T10:00:01Z")
        other = os.open(jobs_directory().with_name("line.lock"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(other, fcntl.LOCK_EX)
        task = asyncio.ensure_future(allocate_and_run(job, queue_context, run_on_nodes=start))
        await asyncio.sleep(0.05)
        assert started == []
        os.close(other)
        await asyncio.wait_for(task, LIMIT_S)

    asyncio.run(run())
    assert started == [True]


@pytest.mark.parametrize("runs", [False, True], ids=["starts", "runs"])
@pytest.mark.parametrize(
    ("change", "starts"),
    [
        ({}, ["one"]),
        ({"force": True}, ["one", "two"]),
        ({"has_gpus": False}, ["one", "two"]),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "2,3"}}, ["one", "two"]),
    ],
    ids=["same GPUs", "force", "no GPUs", "other GPUs"],
)
def test_second_of_two_simultaneous_jobs_is_refused(
    begin: Begin, change: dict[str, Any], starts: list[str], *, runs: bool
) -> None:
    """The nodes, asked before the other's ranks run, would let both start."""
    one = replace(JOB, hosts=(Host(name="a", slots=2),), has_gpus=True)
    started: list[str] = []

    async def submit(name: str, job: JobSpec) -> Failure | None:
        recorder, queue_context = begin(name, start="2026-11-23T10:00:01Z", job=job)

        async def start(_job: object, _has_waited: object) -> None:
            started.append(name)
            if runs:
                recorder.on_running({"a": []}, restart_count=0, gpus={"a": ["0", "1"]})
            await asyncio.sleep(0.1)  # long enough for the other one to look

        return await allocate_and_run(job, queue_context, run_on_nodes=start)

    async def both() -> list[Any]:
        jobs = submit("one", one), submit("two", replace(one, **change))
        return list(await asyncio.gather(*jobs, return_exceptions=True))

    errors = [str(error) for error in asyncio.run(asyncio.wait_for(both(), LIMIT_S)) if error is not None]
    assert started == starts
    assert errors == [REFUSED] * (2 - len(starts))


def test_busy_nodes_return_the_job_to_the_queue(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_wait, "RETRY_S", 0.5)
    found: list[bool] = []

    class ReportingTerminal(Terminal):
        async def send(self, _data: bytes) -> None:
            record = read_record(jobs_directory() / "one")
            assert record is not None
            found.append(record.starting)

    async def start(_job: object, _has_waited: object) -> Failure | None:
        if not found:
            raise BusyError("busy", detail="busy")
        return None

    async def run() -> None:
        _, queue_context = begin("one", start="2026-11-23T10:00:01Z", terminal=ReportingTerminal())
        await asyncio.wait_for(allocate_and_run(WAITING, queue_context, run_on_nodes=start), LIMIT_S)

    asyncio.run(run())
    assert found == [False]


def test_job_tries_all_other_nodes_before_it_asks_those_in_use_again(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("one\ntwo\nthree\n")
    source = HostSource(path=tmp_path / "hosts", slots=None, default_slots=1, of_cluster=True)
    policy = QueuePolicy(timeout_s=10 * queue_wait.RETRY_S, exclusive=True, nodes=NodeRange(min=1, max=1))
    job = replace(JOB, hosts=source.read()[:1], host_source=source, has_gpus=True, queue_policy=policy)
    tried: list[str] = []
    lines: list[str] = []
    later_s = 0.0

    class RecordingTerminal(Terminal):
        async def send(self, data: bytes) -> None:
            nonlocal later_s
            lines.append(data.decode().removeprefix("launch: ").rstrip())
            if "waiting" in lines[-1]:
                later_s += queue_wait.RETRY_S

    async def start(found: JobSpec, _has_waited: object) -> Failure | None:
        tried.extend(host.name for host in found.hosts)
        if len(tried) <= len(source.read()):
            check_gpus(
                found, [GpusInUse(processes=(GpuProcess(gpu_index="0", gpu_uuid="GPU-a", process="process 47 (x)"),))]
            )
        return None

    async def run() -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() + later_s  # type: ignore[method-assign]
        _, queue_context = begin("one", start="2026-11-23T10:00:01Z", terminal=RecordingTerminal(), job=job)
        await allocate_and_run(job, queue_context, run_on_nodes=start)

    asyncio.run(run())
    assert tried == ["one", "two", "three", "one"]
    assert lines == [
        "trying 1 node: two, because GPUs are in use (one: GPU 0 by process 47 (x))",
        "trying 1 node: three, because GPUs are in use (one: GPU 0 by process 47 (x) and 1 more)",
        "waiting, 1st in the queue, for 1 node (one: GPU 0 by process 47 (x) and 2 more)",
    ]


def test_blocked_terminal_does_not_delay_the_timeout(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.output.notes.PRINT_TIMEOUT_S", 0.01)

    async def start(_job: object, _has_waited: object) -> None:
        pytest.fail("it is not its turn")

    async def run() -> None:
        holder, _ = begin("holder", start="2026-11-23T10:00:01Z")
        holder.on_allocated(WAITING)
        _, queue_context = begin("blocked", start="2026-11-23T10:00:02Z", terminal=Terminal(is_blocked=True))
        job = replace(WAITING, queue_policy=QueuePolicy(timeout_s=0.05, exclusive=True))
        await asyncio.wait_for(allocate_and_run(job, queue_context, run_on_nodes=start), LIMIT_S)

    with pytest.raises(QueueTimeoutError, match=r"^not started within 0\.05 s "):
        asyncio.run(run())


def test_job_without_a_limit_waits_for_years(begin: Begin) -> None:
    started: list[JobSpec] = []
    later_s = 0.0

    async def start(job: JobSpec, _has_waited: object) -> Failure | None:
        started.append(job)
        return None

    async def run() -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() + later_s  # type: ignore[method-assign]
        holder, _ = begin("holder", start="2026-11-23T10:00:01Z")
        holder.on_allocated(WAITING)

        class LaterTerminal(Terminal):
            async def send(self, data: bytes) -> None:
                nonlocal later_s
                later_s += YEAR_S
                # Meanwhile the job finds that it must wait longer.
                loop.call_later(0.05, holder.on_end, None)

        _, queue_context = begin("durable", start="2026-11-23T10:00:02Z", terminal=LaterTerminal())
        job = replace(WAITING, queue_policy=QueuePolicy(timeout_s=math.inf, exclusive=True))
        await allocate_and_run(job, queue_context, run_on_nodes=start)

    asyncio.run(run())
    assert len(started) == 1


def test_job_larger_than_the_cluster_leaves_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_wait, "declared_nodes", lambda: 4)
    (tmp_path / "hosts").write_text("one\n")
    source = HostSource(path=tmp_path / "hosts", slots=1, default_slots=1, of_cluster=True)
    for number, its_source in ((4, source), (8, replace(source, of_cluster=False))):
        policy = QueuePolicy(timeout_s=1, exclusive=True, nodes=NodeRange(min=number, max=number))
        assert with_current_hosts(replace(JOB, host_source=its_source), policy)[1] == f"1 of {number} nodes are up"
    with pytest.raises(LaunchError, match=r"^the cluster declares 4 nodes now, the job needs 8$"):
        with_current_hosts(
            replace(JOB, host_source=source), QueuePolicy(timeout_s=1, exclusive=True, nodes=NodeRange(min=8, max=8))
        )
