"""Test what ``dlcluster status --watch`` shows while nodes, jobs and the master change."""

import json
import os
import pty
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest

from cli.errors import EXIT_INTERRUPTED, EXIT_NO_CLUSTER, EXIT_USAGE, ClusterError
from cli.main import main
from cli.ssh.master_connection import CommandResult
from cli.watch import loop, snapshot
from cli.watch.node_checks import Gpu, NodeCheck, parse_answers
from tests.cli.jobs.master import JOB, record
from tests.cli.moto_cluster import KEY, REGION, Deploy, MotoCluster, error_line, put_members

PROGRAM = Path(__file__).parents[3] / "bin" / "dlcluster"
GPU = Gpu(busy_percent=1, used_mib=2, total_mib=3)
ANSWERS = "1 active\n2 active\n2 71, 2048, 81920\n2 89, 4096, 81920\n3 no answer\n"


class Master:
    """Answers the watcher's two queries; the answers can change between two snapshots."""

    def __init__(self) -> None:
        self.answers = ANSWERS
        self.jobs = [record(), record(state="FAILED")]
        self.logins = 0

    def output(self, command: str, **_: object) -> CommandResult:
        if self.answers == "lost":
            raise ClusterError("the connection to 203.0.113.5 was lost")
        printed = json.dumps(self.jobs) if command.startswith("launch list") else self.answers
        return CommandResult(exit_code=0, stdout=printed.encode(), stderr="")


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    made = Master()

    @contextmanager
    def connect(_: object) -> Iterator[Master]:
        made.logins += 1
        yield made

    monkeypatch.setattr(snapshot, "open_connection", connect)
    return made


def between_snapshots(monkeypatch: pytest.MonkeyPatch, *events: Callable[[], object]) -> None:
    """Make each event occur after one snapshot, and Ctrl-C after the last."""
    pending = list(events)

    def sleep(_: float) -> None:
        if not pending:
            raise KeyboardInterrupt
        pending.pop(0)()

    monkeypatch.setattr(loop, "watch", partial(loop.watch, sleep=sleep))


def test_each_snapshot_is_a_block_of_lines(
    deploy: Deploy, master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy()
    between_snapshots(monkeypatch, lambda: master.jobs.clear())
    assert main(["status", "--watch"]) == EXIT_INTERRUPTED
    head, columns, first, second, third, job, *rest = capsys.readouterr().out.splitlines()
    assert head.endswith("Z demo: 3 of 3 nodes, generation 7")
    assert columns.split() == ["INDEX", "NODE", "INSTANCE", "TYPE", "STATE", "AGENT", "SSHD", "GPUS"]
    assert first.split()[4:] == ["running", "active", "ok", "-"]
    assert second.split("active")[1].split() == ["ok", "2", "x", "80%,", "6", "of", "160", "GiB"]
    assert third.split("running")[1].split() == ["unknown", "no", "answer", "-"]
    assert job.startswith(f"job {JOB} RUNNING (")
    assert job.endswith(" on 2 nodes: python -u train.py")
    assert (len(rest), rest[-2:], master.logins) == (8, ["no job runs", ""], 1)


def test_with_json_each_snapshot_is_one_line(
    deploy: Deploy, master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy()
    between_snapshots(monkeypatch, lambda: setattr(master, "answers", "lost"))
    assert main(["status", "--watch", "--json"]) == EXIT_INTERRUPTED
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["version"], first["cluster"], first["error"]) == (1, "demo", None)
    assert [job["id"] for job in first["jobs"]] == [JOB]
    nodes: list[dict[str, Any]] = first["nodes"]
    assert [(node["agent"], node["sshd"]) for node in nodes] == [("active", True), ("active", True), (None, False)]
    assert nodes[1]["gpus"][1] == {"busy_percent": 89, "used_mib": 4096, "total_mib": 81920}
    assert (second["error"], second["jobs"]) == ("the connection to 203.0.113.5 was lost", [])
    assert [(node["agent"], node["sshd"], node["gpus"]) for node in second["nodes"]] == [(None, None, [])] * 3


def without_master(moto_cluster: MotoCluster) -> None:
    row = {"instance_id": moto_cluster.instance_ids[1], "address": "10.0.1.20", "node_type": "worker", "host_key": KEY}
    put_members(moto_cluster.table, [{"node_index": 2, **row}], desired_nodes=3)


def test_watch_continues_while_the_master_is_replaced(
    deploy: Deploy, master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moto_cluster = deploy()
    rows = [
        {"node_index": i, "instance_id": name, "address": f"10.0.{i > 1:d}.{i}0", "node_type": kind, "host_key": KEY}
        for i, (name, kind) in enumerate(zip(moto_cluster.instance_ids, ["master", "worker", "worker"], strict=True), 1)
    ]
    between_snapshots(monkeypatch, lambda: without_master(moto_cluster), lambda: put_members(moto_cluster.table, rows))
    assert main(["status", "--watch"]) == EXIT_INTERRUPTED
    out = capsys.readouterr().out
    assert out.count("nodes and jobs are not known: the cluster has no master now: it may be starting") == 1
    assert "2 of 3 nodes missing: 1 has joined, 1 of these is running" in out
    assert (out.count(f"job {JOB}"), master.logins) == (2, 2)


def test_watch_ends_when_the_cluster_is_destroyed(
    deploy: Deploy, master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy()
    cloudformation = boto3.client("cloudformation", region_name=REGION)
    between_snapshots(monkeypatch, lambda: cloudformation.delete_stack(StackName="demo-stack"))
    assert main(["status", "--watch"]) == EXIT_NO_CLUSTER
    assert capsys.readouterr().err.startswith("dlcluster: no cluster in eu-west-1")


def test_watch_continues_after_a_failed_call(
    deploy: Deploy, master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moto_cluster = deploy()
    dynamodb = boto3.client("dynamodb", region_name=REGION)
    between_snapshots(
        monkeypatch, lambda: dynamodb.delete_item(TableName=moto_cluster.table, Key={"id": {"S": "membership"}})
    )
    assert main(["status", "--watch"]) == EXIT_INTERRUPTED
    reason = "cluster demo has no members yet: its master has not started"
    assert capsys.readouterr().err.strip() == f"dlcluster: {reason}; trying again"


def test_interval_requires_watch(aws: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--interval", "3"]) == EXIT_USAGE
    assert error_line(capsys) == "--interval requires --watch"


def test_terminal_shows_one_table_that_changes(deploy: Deploy) -> None:
    without_master(deploy())
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160"}
        os.execve(sys.executable, [sys.executable, str(PROGRAM), "status", "--watch", "--interval", "1"], environment)
    shown, deadline = "", time.monotonic() + 120
    while shown.count("nodes and jobs are not known") < 2:
        assert time.monotonic() < deadline, shown
        shown += os.read(terminal, 65536).decode(errors="replace")
    os.write(terminal, b"\x03")
    status = os.waitpid(pid, 0)[1]
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == EXIT_INTERRUPTED, shown
    assert "\x1b[1A\x1b[2K" in shown  # the second table replaces the first


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 active\n", NodeCheck(sshd=True, agent="active")),
        ("2 failed\n2 1, 2, 3\n", NodeCheck(sshd=True, agent="failed", gpus=(GPU,))),
        ("2 active\n2 [N/A], 2, 3\n2 No devices were found\n", NodeCheck(sshd=True, agent="active")),
        ("2 no answer\n", NodeCheck(sshd=False)),
        ("2 \x1b[2Jactive\n", NodeCheck(sshd=False)),
        ("22 active\n", NodeCheck(sshd=False)),
        ("", NodeCheck(sshd=False)),
    ],
)
def test_answers_of_nodes_are_validated(text: str, expected: NodeCheck) -> None:
    assert parse_answers(text, [2]) == {2: expected}
