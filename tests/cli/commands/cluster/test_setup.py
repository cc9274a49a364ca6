"""Test where ``dlcluster setup`` runs what, and when it refuses; the master is a stand-in."""

import json
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cli.aws.nodes import ClusterMembership, ClusterNode
from cli.errors import EXIT_FAILED
from cli.main import main
from cli.ssh.master_connection import CommandResult
from tests.cli.moto_cluster import KEY

SHA256 = "0123456789abcdef" * 4
OUTPUT = f"s3://assets/{SHA256}.zip {SHA256} 900"
JOB = {"id": "2026-1", "command": ["true"], "hosts": [], "submitted_at": "2026-01-01T00:00:00Z", "cwd": "/"}


@dataclass
class Master:
    """Runs commands, and fails on one node."""

    job_state: str = "SUCCEEDED"
    fails_on: str = ""
    refusals: int = 0
    """Number of logins to the workers that are refused."""
    ran: list[list[str]] = field(default_factory=list)
    waits_for: int = 0
    """Number of workers that must be running the setup at the same time."""
    together: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.together = threading.Barrier(max(self.waits_for, 1), timeout=60)

    def output(self, command: str, *, timeout_s: float | None = None) -> CommandResult:
        words = shlex.split(command)
        if words[0] == "launch":
            printed = json.dumps([{**JOB, "state": self.job_state}])
            return CommandResult(exit_code=0, stdout=printed.encode(), stderr="")
        assert timeout_s is not None
        assert timeout_s > 900
        self.ran.append(words)
        if words[0] == "ssh" and self.waits_for and len(self.ran) <= self.waits_for + 1:
            self.together.wait()
        if words[0] == "ssh" and self.refusals:
            self.refusals -= 1
            return CommandResult(exit_code=255, stdout=b"", stderr="Permission denied (publickey).\n")
        fails = self.fails_on in words
        return CommandResult(
            exit_code=int(fails), stdout=b"", stderr="bootstrap: E: no package\x1b foo\n" if fails else ""
        )


@dataclass
class Clock:
    """A clock that advances without waiting."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the command against a cluster of three, whose second node already has the setup."""

    def run(master: Master, *words: str, setup: str | None = OUTPUT, nodes: int = 3) -> int:
        members = tuple(
            ClusterNode(
                node_index=index,
                instance_id=f"i-{index:017}",
                address=f"10.0.0.{index}",
                node_type="master" if index == 1 else "worker",
                host_key=KEY,
                setup=f"done:{SHA256[:12]}" if index == 2 else "",
            )
            for index in range(1, nodes + 1)
        )
        context: Any = SimpleNamespace(
            cluster=SimpleNamespace(name="demo", setup=setup),
            membership=ClusterMembership(generation=1, desired_nodes=nodes, members=members),
        )

        @contextmanager
        def connect_to_master(_selection: object) -> Iterator[Any]:
            yield context, master

        monkeypatch.setattr("cli.commands.cluster.setup.connect_to_master", connect_to_master)
        return main(["setup", *words])

    return run


def test_nodes_without_the_deployed_setup_get_it(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    master = Master()
    assert run(master, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": 1, "cluster": "demo", "sha256": SHA256, "nodes": ["master", "worker3"],
    }  # fmt: skip
    here, there = master.ran
    program = ["sudo", "-n", "python3", "/opt/deeplearning/current/bootstrap", "apply-setup"]
    assert here[:5] == there[-11:-6] == program
    # The master's files omit a node whose setup has failed, so address and key come from the record.
    assert there[there.index("HostName=10.0.0.3") :][:6] == [
        "HostName=10.0.0.3",
        "-o",
        "HostKeyAlias=deeplearning-worker3",
        "-o",
        f"KnownHostsCommand=/bin/echo deeplearning-worker3 {KEY}",
        "deeplearning-worker3",
    ]
    assert here[-6:] == there[-6:]
    assert here[-6:] == ["--url", f"s3://assets/{SHA256}.zip", "--sha256", SHA256, "--timeout", "900"]


def test_setup_stops_at_the_first_node_on_which_it_fails(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    master = Master(fails_on="apply-setup")
    assert run(master) == EXIT_FAILED
    assert len(master.ran) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "dlcluster: master: E: no package  foo"


def test_after_the_first_node_eight_run_it_at_a_time(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    master = Master(waits_for=8)
    assert run(master, nodes=19) == 0
    assert capsys.readouterr().err.count("running setup") == 4
    assert len(master.ran) == 18
    failing = Master(fails_on="deeplearning-worker5")
    assert run(failing, nodes=19) == EXIT_FAILED
    # Started runs finish, and no other run starts.
    assert len(failing.ran) == 9
    assert capsys.readouterr().err.splitlines()[-1] == "dlcluster: worker5: E: no package  foo"


def test_refused_connection_to_a_new_node_is_retried(run: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("cli.commands.cluster.setup.time.monotonic", clock)
    monkeypatch.setattr("cli.commands.cluster.setup.time.sleep", clock.advance)
    assert run(Master(refusals=3)) == 0
    assert run(Master(refusals=1000)) == EXIT_FAILED


def test_waiting_durable_job_does_not_block_its_setup(run: Callable[..., int]) -> None:
    master = Master(job_state="WAITING")
    assert run(master) == 0
    assert len(master.ran) == 2


def test_setup_is_refused_while_a_job_runs(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    master = Master(job_state="RUNNING")
    assert run(master) == EXIT_FAILED
    assert master.ran == []
    assert "dlcluster: job 2026-1 runs, and a setup may change what it uses" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setup", "printed"),
    [
        (None, "cluster demo has no setup: name one in cdk.json, then cdk deploy"),
        ("$(reboot)", "output ClusterSetup must be the URL of an S3 object, its SHA-256 and seconds, got '$(reboot)'"),
    ],
)
def test_missing_or_invalid_deployed_setup_is_reported(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], setup: str | None, printed: str
) -> None:
    assert run(Master(), setup=setup) == EXIT_FAILED
    assert capsys.readouterr().err == f"dlcluster: {printed}\n"
