"""What the launcher makes of what a node says, and of its silence."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from launcher.detached.unit import LogSink
from launcher.hosts.hostfile import Host
from launcher.job.attempt import unless_crashed
from launcher.job.missing_cwd import MissingCwd
from launcher.job.node import Failure, Node
from launcher.spec import NodeSpec, ProcessSpec
from launcher.transport.connection import Connection
from launcher.transport.protocol import Frame, FrameType

LEAVER, OTHER = Host(name="deeplearning-worker3"), Host(name="deeplearning-worker2")
NOTICE = Failure(exit_code=1, reason="r", preempted=True, preempted_host=LEAVER)
RANK = ProcessSpec(name="rank 0", label="0", command=("x",), environment={})


class Runner:
    """A connection with somebody who says what the test does."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def close(self) -> None:
        """It is told to end its processes."""


def told(host: Host, *answers: tuple[int, bytes], processes: tuple[ProcessSpec, ...] = (RANK,), log: LogSink) -> Node:
    """A node whose processes are to end, and what it has said since."""

    async def end() -> Node:
        spec = NodeSpec(job_id="j", host=str(host), processes=processes, environment={}, peer="127.0.0.1", cwd="/")
        missing_cwd = MissingCwd([host], wanted="/", notes=log)
        node = Node(cast(Connection, Runner(host)), spec, {FrameType.STDOUT: log, FrameType.STDERR: log}, missing_cwd)
        node.stop()
        failure: asyncio.Future[Failure] = asyncio.get_running_loop().create_future()
        for kind, payload in answers:
            await node._take(Frame(kind=kind, process=0, payload=payload), failure)
        return node

    return asyncio.run(end())


@pytest.mark.parametrize(
    ("answers", "preempted"),
    [
        ([], False),
        # What it said before may have been read slowly.
        ([(FrameType.STDOUT, b"said\n")], False),
        ([(FrameType.ALIVE, b"")], True),
        ([(FrameType.EXIT, b"143")], True),
    ],
)
def test_a_node_with_notice_answers_and_one_that_has_crashed_does_not(
    tmp_path: Path, answers: list[tuple[int, bytes]], preempted: bool
) -> None:
    log = LogSink(tmp_path)
    outcome = unless_crashed(NOTICE, [told(OTHER, log=log), told(LEAVER, *answers, log=log)])
    assert outcome is not None
    assert outcome.preempted is preempted


def test_a_node_that_runs_nothing_has_nothing_to_say(tmp_path: Path) -> None:
    # As the other nodes of mpirun's.
    assert unless_crashed(NOTICE, [told(LEAVER, processes=(), log=LogSink(tmp_path))]) is NOTICE


def test_any_other_failure_stays_what_it_is(tmp_path: Path) -> None:
    failed = Failure(exit_code=3, reason="r")
    silent = told(OTHER, log=LogSink(tmp_path))
    assert unless_crashed(failed, [silent]) is failed
    assert unless_crashed(None, [silent]) is None
