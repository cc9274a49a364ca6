"""Test dlcluster check against a master whose answers the test defines."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cli.aws.nodes import ClusterMembership, ClusterNode
from cli.errors import EXIT_FAILED
from cli.main import main
from cli.ssh.master_connection import CommandResult
from tests.cli.moto_cluster import KEY, error_line
from trainer.check.node_devices import NodeDevices
from trainer.check.report import Report

JOB = {"id": "2026-1", "state": "SUCCEEDED", "command": ["true"], "hosts": [], "submitted_at": "", "cwd": "/"}
SLOW = {
    "node": "worker3", "what": "slow", "found": 1.25, "expected": 40.0,
    "sentence": "worker3 is slow: 1.25 GB/s with its fastest partner, below 67% of the nodes' median of 40 GB/s",
}  # fmt: skip


def node(name: str, figure: float = 40.0) -> dict[str, Any]:
    counts = {"gpus": 8, "expected_gpus": 8, "efa": 4, "expected_efa": 4}
    return {"name": name, **counts, "gb_per_s": figure, "pairs_gb_per_s": {"master": figure, "nobody": 1.0}}


def report(*findings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    nodes = [node("master"), node("worker2"), node("worker3", 1.25 if findings else 40.0)]
    figures = {"gb_per_s": 38.5, "median_gb_per_s": 40.0, "nodes": nodes}
    return {"comm_backend": "nccl", "ranks": 24, **figures, "findings": [*findings], **changes}


@dataclass
class Master:
    """Lists one job, and runs the check."""

    output_of_check: CommandResult
    job_state: str = "SUCCEEDED"
    ran: list[str] = field(default_factory=list)

    def output(self, command: str, *, keep_stdin_open: bool = False, timeout_s: float | None = None) -> CommandResult:
        if command == "launch list --json":
            return CommandResult(exit_code=0, stdout=json.dumps([{**JOB, "state": self.job_state}]).encode(), stderr="")
        assert keep_stdin_open
        assert timeout_s is not None
        self.ran.append(command)
        return self.output_of_check


def check_output(found: Any) -> CommandResult:
    lines = f"deeplearning-worker2 [0] noise\ndeeplearning-worker1 [0] {json.dumps(found)}\n"
    return CommandResult(exit_code=0, stdout=lines.encode(), stderr="")


def check(monkeypatch: pytest.MonkeyPatch, master: Master, *words: str, master_trains: bool = True) -> int:
    """Run the command against a cluster of four desired nodes, three of which are up."""
    members = tuple(
        ClusterNode(
            node_index=index,
            instance_id=f"i-{index}",
            address=f"10.0.0.{index}",
            node_type="master" if index == 1 else "worker",
            host_key=KEY,
        )
        for index in (1, 2, 3)
    )
    membership = ClusterMembership(generation=1, desired_nodes=4, members=members, master_trains=master_trains)
    context = SimpleNamespace(cluster=SimpleNamespace(name="demo"), membership=membership)

    @contextmanager
    def connected(_: object) -> Iterator[tuple[Any, Any]]:
        yield context, master

    monkeypatch.setattr("cli.commands.cluster.check.connect_to_master", connected)
    return main(["check", *words])


def test_no_node_of_a_healthy_cluster_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    master = Master(check_output(report()))
    assert check(monkeypatch, master) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "3 nodes, 24 ranks with nccl: bus bandwidth between all 38.5 GB/s",
        "NODE     INSTANCE  GPUS    EFA     GB/S  WITH",
        "master   i-1       8 of 8  4 of 4  40    master 40",
        "worker2  i-2       8 of 8  4 of 4  40    master 40",
        "worker3  i-3       8 of 8  4 of 4  40    master 40",
        "no node stands out",
    ]
    assert shown.err == "dlcluster: nodes missing: 1; dlcluster status says why\n"
    assert ["launch --force python /opt/deeplearning/trainer/check --json" in line for line in master.ran] == [True]


def test_master_that_does_not_train_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = report(nodes=[node("worker2"), node("worker3")])
    assert check(monkeypatch, Master(check_output(workers)), master_trains=False) == 0
    assert capsys.readouterr().err == "dlcluster: nodes missing: 1; dlcluster status says why\n"


def test_slow_node_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(monkeypatch, Master(check_output(report(SLOW)))) == EXIT_FAILED
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == f"{SLOW['sentence']}; to replace it: aws ec2 terminate-instances --instance-ids i-3"
    assert check(monkeypatch, Master(check_output(report(SLOW))), "--json") == EXIT_FAILED
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["cluster"], found["missing_nodes"], found["gb_per_s"]) == (1, "demo", 1, 38.5)
    assert found["findings"] == [{**SLOW, "instance_id": "i-3"}]
    assert found["nodes"][2] == {**node("worker3", 1.25), "instance_id": "i-3", "pairs_gb_per_s": {"master": 1.25}}


def test_report_written_by_the_nodes_is_read_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    devices = [NodeDevices(name=name, gpus=8, expected_gpus=8, efa=4, expected_efa=4) for name in ("master", "worker2")]
    poor = NodeDevices(name="worker3", gpus=7, expected_gpus=8, expected_efa=0)
    pairs = {(0, 1): 40.0, (0, 2): 1.25, (1, 2): 1.0}
    written = Report(devices=[*devices, poor], pairs=pairs, all_nodes_gb_per_s=1.0, ranks=21, comm_backend="nccl")
    assert check(monkeypatch, Master(check_output(json.loads(written.json())))) == EXIT_FAILED
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "worker3  i-3       7 of 8  0 of 0  1.25  master 1.25, worker2 1",
        "worker3 has 7 GPUs, it should have 8; to replace it: aws ec2 terminate-instances --instance-ids i-3",
        f"{SLOW['sentence']}; to replace it: aws ec2 terminate-instances --instance-ids i-3",
    ]
    assert [line.split(": ")[0] for line in written.text().splitlines()] == [
        "nccl with 21 ranks on 3 nodes", "master", "worker2", "worker3", "worker3 has 7 GPUs, it should have 8",
        "worker3 is slow",
    ]  # fmt: skip
    alone = Report(devices=[devices[0]], pairs={}, all_nodes_gb_per_s=None, ranks=1, comm_backend="gloo")
    assert check(monkeypatch, Master(check_output(json.loads(alone.json())))) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no node lacks devices; it takes three nodes to name a slow one"


def test_refused_while_a_job_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    master = Master(check_output(report()), job_state="RUNNING")
    assert check(monkeypatch, master) == EXIT_FAILED
    assert error_line(capsys) == "job 2026-1 runs, and a check would share its network: wait, or dlcluster stop 2026-1"
    assert master.ran == []


@pytest.mark.parametrize(
    ("code", "stderr", "reason"),
    [
        (
            1,
            "deeplearning-worker2 [0] check: worker2 has no torch in its Python environment (python)\n"
            "launch: rank 1 failed\n",
            "worker2 has no torch in its Python environment (python)",
        ),
        (
            127,
            "launch: worker3: rank 2 ended with exit code 127\n",
            "worker3: rank 2 ended with exit code 127: no python there, and the check needs one with PyTorch",
        ),
        (1, "launch: nothing started: no EFA on w2\x1b\n", "nothing started: no EFA on w2 "),
        (1, "", "exit code 1"),
    ],
)
def test_failed_check_prints_the_jobs_own_reason(
    code: int, stderr: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(monkeypatch, Master(CommandResult(exit_code=code, stdout=b"", stderr=stderr))) == EXIT_FAILED
    assert error_line(capsys) == f"the check failed: {reason}"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (CommandResult(exit_code=0, stdout=b"nothing\n", stderr=""), "the check on the nodes printed no report"),
        (
            check_output(report(nodes=[node("worker9")])),
            "the check on the nodes printed a report that cannot be used: KeyErr",
        ),
        (
            check_output(report(gb_per_s=float("inf"))),
            "the check on the nodes printed a report that cannot be used: ValueErr",
        ),
        (check_output({}), "the check on the nodes printed a report that cannot be used: KeyError('comm_backend')"),
    ],
)
def test_report_that_cannot_be_used_is_one_line(
    output: CommandResult, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(monkeypatch, Master(output)) == EXIT_FAILED
    assert error_line(capsys).startswith(reason)
