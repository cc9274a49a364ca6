"""Stand in for a master whose answers the test defines."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from bootstrap.contract import NodeType
from cli.aws.nodes import ClusterNode
from cli.files.upload import Upload
from cli.ssh.master_connection import CommandResult
from tests.cli.moto_cluster import KEY, RELEASE

JOB = "20260101-000000-abcdef0"


SENT = Upload(name="my-job", files=3, size=30, sent_files=2, sent_size=20)


def record(state: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    return {
        "version": 1, "id": JOB, "state": state, "command": ["python", "-u", "train.py"], "hosts": ["w1", "w2"],
        "framework": "torch", "cwd": "/home/ubuntu/my-job", "user": "ubuntu", "pid": 7,
        "submitted_at": "2026-01-01T00:00:00Z", "end": None if state == "RUNNING" else "2026-01-01T01:02:03Z",
        "exit_code": None, "reason": None, "detached": True, "later": "unknown here", **changes,
    }  # fmt: skip


def member(index: int) -> ClusterNode:
    node_type: NodeType = "worker" if index > 1 else "master"
    address = f"10.0.0.{index}"
    return ClusterNode(
        node_index=index, instance_id=f"i-{index}", address=address, node_type=node_type, host_key=KEY, release=RELEASE
    )


class Master:
    """Answers lines by their beginning, and records what was run."""

    def __init__(self) -> None:
        self.answers: dict[str, CommandResult] = {}
        self.ran: list[str] = []
        self.inputs: list[bytes] = []
        self.on_stream: Callable[[], int] = lambda: 0
        self.stream_errors = b""
        """Standard error of a streamed command."""
        self.nodes = 3
        self.master_trains = True
        self.release = RELEASE
        """Release of the stack."""

    def set_answer(self, beginning: str, stdout: str = "", *, code: int = 0, stderr: str = "") -> None:
        self.answers[beginning] = CommandResult(exit_code=code, stdout=stdout.encode(), stderr=stderr)

    def output(self, command: str, *, chunks: Iterable[bytes] = (), **_: object) -> CommandResult:
        self.ran.append(command)
        self.inputs += chunks
        return next(answer for beginning, answer in self.answers.items() if beginning in command)

    def stream(self, command: str, *, stderr_fd: int, **_: object) -> int:
        self.ran.append(command)
        os.write(stderr_fd, self.stream_errors)
        return self.on_stream()


def set_job_answers(master: Master, *, end: dict[str, Any]) -> None:
    """Let the master start a job, with no other job there, and report this record of its end."""
    master.set_answer(
        "launch --detach", f"{JOB}\n", stderr=f"launch: follow it with: launch logs -f {JOB}\nlaunch: note\n"
    )
    master.set_answer("launch list --json", "[]")
    master.set_answer("launch status", json.dumps(end))
    master.set_answer("launch stop", f"{JOB} CANCELLED\n")
