"""Test how the launcher handles a node's frames, and its silence."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import cast

import pytest

from launcher.detached.unit import LogSink
from launcher.hosts.hostfile import Host
from launcher.job.failure import SHORT_RUN_S, Failure, FailureCause, cause_after_run
from launcher.job.missing_cwd import MissingCwd
from launcher.job.supervision import NodeRun
from launcher.spec import NodeSpec, ProcessSpec
from launcher.transport.connection import RunnerConnection
from launcher.transport.protocol import Frame, FrameType

LEAVER, OTHER = Host(name="deeplearning-worker3"), Host(name="deeplearning-worker2")
NOTICE = Failure(exit_code=1, reason="r", cause=FailureCause.PREEMPTION, departed_host=LEAVER)
RANK = ProcessSpec(name="rank 0", label="0", command=("x",), environment={})


class Runner:
    """Stands in for a connection whose frames the test chooses."""

    def __init__(self, host: Host, frames: Iterable[Frame]) -> None:
        self.host = host
        self._frames = frames

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the frames, then end."""
        for frame in self._frames:
            yield frame

    async def end_reason(self) -> str:
        """Return why the connection ended."""
        return "ended"

    def request_stop(self) -> None:
        """Take the request to end the processes."""


def stopped_node(
    host: Host, *answers: tuple[int, bytes], processes: tuple[ProcessSpec, ...] = (RANK,), log: LogSink
) -> NodeRun:
    """Return a node whose processes were asked to end, after it has handled these frames."""

    async def end() -> NodeRun:
        spec = NodeSpec(job_id="j", host=str(host), processes=processes, environment={}, peer="127.0.0.1", cwd="/")
        missing_cwd = MissingCwd([host], cwd="/", stderr=log)
        runner = Runner(host, [Frame(kind=kind, process=0, payload=payload) for kind, payload in answers])
        streams = {FrameType.STDOUT: log, FrameType.STDERR: log}
        node = NodeRun(cast(RunnerConnection, runner), spec, streams, missing_cwd)
        node.stop()
        await node.follow(asyncio.get_running_loop().create_future())
        return node

    return asyncio.run(end())


def cause_after_stop(failure: Failure, nodes: list[NodeRun]) -> FailureCause:
    """Return the cause of the failure after a long run on these nodes."""
    silent_hosts = [node.connection.host for node in nodes if node.is_silent_after_stop]
    return cause_after_run(failure, silent_hosts=silent_hosts, run_s=SHORT_RUN_S)


@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        ([], FailureCause.NODE_LOSS),
        # Earlier output may arrive late.
        ([(FrameType.STDOUT, b"said\n")], FailureCause.NODE_LOSS),
        ([(FrameType.HEARTBEAT, b"")], FailureCause.PREEMPTION),
        ([(FrameType.EXIT, b"143")], FailureCause.PREEMPTION),
    ],
)
def test_node_with_a_notice_answers_and_a_crashed_one_does_not(
    tmp_path: Path, answers: list[tuple[int, bytes]], cause: FailureCause
) -> None:
    log = LogSink(tmp_path)
    nodes = [stopped_node(OTHER, log=log), stopped_node(LEAVER, *answers, log=log)]
    assert cause_after_stop(NOTICE, nodes) is cause


def test_node_without_processes_is_not_lost(tmp_path: Path) -> None:
    # On the other nodes of an mpirun job, the job waits for no process.
    node = stopped_node(LEAVER, processes=(), log=LogSink(tmp_path))
    assert cause_after_stop(NOTICE, [node]) is FailureCause.PREEMPTION


def test_silent_node_does_not_change_another_cause(tmp_path: Path) -> None:
    failed = Failure(exit_code=3, reason="r")
    silent = stopped_node(OTHER, log=LogSink(tmp_path))
    assert cause_after_stop(failed, [silent]) is FailureCause.OTHER
