"""Use dlcluster's commands on the private cluster, from a directory with a user's script."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from cli.command_group import COMMANDS
from local.run.user import deploy_arguments
from tests.e2e.private.existing_vpc import NAME, PrivateCluster
from tests.e2e.support.jupyter import FILES, address_and_token
from tests.e2e.support.node_checks import limited_links
from tests.e2e.support.user_venv import make_venv
from tests.waiting import wait_until
from trainer.metrics.metric_writers import open_writers

SCRIPT: Final = """\
import os, sys, time
from pathlib import Path
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
Path("out").mkdir(exist_ok=True)
Path("out", "rank-" + os.environ["RANK"]).write_text("done")
time.sleep(300 if "--wait" in sys.argv else 0)
"""
LONG: Final = ("check", "extend", "pause", "resize", "resume", "up", "bake")
"""Commands that measure, deploy or boot nodes; ``make soak`` runs them."""
ELSEWHERE: Final = ("preflight", "tunnel", "ssm-proxy", "policy")
"""Commands that other tests of the cluster run: before the deploy, for a port, at each login, for a user."""


@dataclass(frozen=True, kw_only=True)
class Commands:
    """Runs commands, and knows which ones have run."""

    cluster: PrivateCluster
    seen: set[str]

    @classmethod
    def of(cls, cluster: PrivateCluster, project: Path) -> "Commands":
        """Use them from a project with the script."""
        project.mkdir()
        (project / "train.py").write_text(SCRIPT)
        return cls(cluster=replace(cluster, checkout=project), seen=set())

    def text(self, command: str, *args: str, code: int = 0) -> str:
        """Return what a command prints; on success it prints no traceback, and on failure one line."""
        done = self.run(command, *args)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    def json(self, command: str, *args: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.text(command, "--json", *args))
        assert answer["version"] == 1
        return answer

    def run(self, command: str, *args: str) -> "subprocess.CompletedProcess[str]":
        self.seen.add(command)
        return self.cluster.try_in_checkout("dlcluster", "--cluster", NAME, command, *args)

    @contextmanager
    def running(self, command: str, *args: str) -> "Iterator[subprocess.Popen[str]]":
        """Start a command that runs until it is interrupted."""
        self.seen.add(command)
        line = ["dlcluster", "--cluster", NAME, command, *args]
        environment = dict(self.cluster.user.environment)
        process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=60)

    def commands_not_run(self) -> set[str]:
        """Return the commands that have not run."""
        return COMMANDS.keys() - self.seen


def check_reports(commands: Commands) -> None:
    """Check the commands that describe the cluster; text and JSON contain the same facts."""
    ids = {str(instance["InstanceId"]) for instance in commands.cluster.instances}
    assert {node["instance_id"] for node in commands.json("status")["nodes"]} == ids
    text = commands.text("status")
    assert all(instance_id in text for instance_id in ids)
    assert NAME in [cluster["name"] for cluster in commands.json("list")["clusters"]]
    assert NAME in commands.text("list")
    assert commands.json("why")["stack"]["status"] == "CREATE_COMPLETE"
    assert "CREATE_COMPLETE" in commands.text("why")
    assert f"{commands.json('cost')['usd_per_hour']:.2f}" in commands.text("cost")
    assert commands.json("setup")["nodes"] == []
    assert commands.text("setup").endswith("done on all nodes before\n")
    for command in ("delete-bucket", "delete-storage"):
        commands.text(command)
    assert "_DLCLUSTER_COMPLETE" in commands.text("completion", "bash")


def check_logins(commands: Commands) -> None:
    """Check the commands that lead to nodes, and those that have nothing to do there."""
    assert len(commands.text("ssh", "--", "cat /opt/deeplearning/workers").split()) == len(commands.cluster.instances)
    hosts = commands.text("known-hosts")
    assert all(str(instance["InstanceId"]) in hosts for instance in commands.cluster.instances)
    assert "ssm-proxy" in commands.text("ssh-config")
    # The list of addresses is for clusters with a public master.
    for options in ((), ("--json",)):
        refusal = commands.text("allow-ip", *options, code=1)
        assert refusal == f"dlcluster: {NAME} is private: logins go through Session Manager, from any address\n"
    for command, module in (("jupyter", "jupyterlab"), ("tensorboard", "tensorboard")):
        assert f"on the master has no {module}; install it with" in commands.text(command, code=1)


def check_jobs(commands: Commands, *, nodes: int) -> None:
    """Run, list, follow and stop jobs."""
    printed = commands.text("run", "--venv", "/opt/pytorch", "--", "train.py")
    assert all(f"rank {rank} of {nodes}" in printed for rank in range(nodes))
    ended = commands.json("jobs")["jobs"][-1]
    assert (ended["state"], ended["exit_code"], len(ended["nodes"])) == ("SUCCEEDED", 0, nodes)
    assert ended["id"] in commands.text("jobs")
    assert f"rank 0 of {nodes}" in commands.text("logs", ended["id"])
    wait = ("--venv", "/opt/pytorch", "--", "train.py", "--wait")
    held = commands.json("run", "--detach", "--name", "held", *wait)
    stopped = commands.json("stop", "held")
    assert (stopped["job"], stopped["state"]) == (held["job"], "CANCELLED")
    other = commands.text("run", "--detach", "--name", "other", *wait).strip()
    assert other in commands.text("stop", "other")


def check_copies(commands: Commands, directory: Path) -> None:
    """Copy files to the nodes, and back."""
    (commands.cluster.checkout / "new.py").write_text("new")
    assert commands.json("push")["sent_files"] == 1
    assert "is in ~/project on every node" in commands.text("push")
    assert commands.json("pull", "worker3:project/out", str(directory / "json"))["files"] == 1
    assert [path.name for path in (directory / "json").iterdir()] == ["rank-2"]
    assert "1 file" in commands.text("pull", "worker2:project/new.py", str(directory))
    assert (directory / "new.py").read_text() == "new"


def check_tensorboard(commands: Commands, directory: Path) -> None:
    """Open a real TensorBoard on the master, which shows what the trainer wrote."""
    user, master = commands.cluster.user, f"{NAME}-master"
    make_venv(user, "tools", "tensorboard", master=master)
    with open_writers(metrics=None, tensorboard=str(directory / "runs/first")) as writers:
        writers.write({"train/loss": 0.5}, epoch=0, samples=64)
    user.run("scp", "-q", "-r", "-F", str(user.ssh_config), str(directory / "runs"), f"{master}:")
    with commands.running("tensorboard", "--venv", "tools", "--logdir", "runs") as board:
        assert board.stdout is not None
        address = board.stdout.readline().split()[0]

        def runs() -> list[str]:
            with urlopen(f"{address}data/runs", timeout=60) as answer:
                return list(json.load(answer))

        # It answers before it has read the directory.
        wait_until(lambda: runs() == ["first"], "the run", timeout_s=60)


def check_jupyter(commands: Commands) -> None:
    """Open a stand-in for JupyterLab on the master, which wants its token."""
    make_venv(commands.cluster.user, "lab", files=FILES, master=f"{NAME}-master")
    with commands.running("jupyter", "--venv", "lab") as lab:
        assert lab.stdout is not None
        address, token = address_and_token(lab.stdout.readline())
        with urlopen(f"{address}lab?token={token}", timeout=60) as answer:
            assert answer.read() == b"/home/ubuntu"
        with pytest.raises(HTTPError, match="403"):
            urlopen(f"{address}lab?token=0", timeout=60)


def check_long_commands(commands: Commands, deploying: Commands, *, settings: list[str], nodes: int) -> None:
    """Measure the nodes, change the cluster's end and its size, pause it, and make an image."""
    with limited_links([str(instance["InstanceId"]) for instance in commands.cluster.instances]):
        assert commands.json("check")["findings"] == []
        assert commands.text("check").startswith(f"{nodes} nodes, {nodes} ranks with gloo")
    given = [*deploy_arguments(nodes=nodes)[3:], *settings]
    at = given.index(f"worker_count={nodes - 1}")
    without_count = [*given[: at - 1], *given[at + 1 :]]
    assert deploying.json("extend", "8h", *given)["deployed"]
    assert deploying.text("extend", "1h", *given) != ""
    deploying.json("resize", str(nodes - 2), "--yes", *without_count)
    deploying.text("resize", str(nodes - 1), "--yes", *without_count)
    # A worker of the first size may still be ending, and the last one may only just start.
    assert len(commands.json("pause", "--yes")["terminated"]) >= nodes - 1
    assert commands.cluster.instances == []
    assert f"{NAME} is paused" in commands.text("pause", "--yes")
    commands.json("resume")
    commands.text("resume")
    # In an existing network the subnet decides the zone, so there is none to search for.
    assert deploying.text("up", "--yes", *given, code=2).count("\n") == 1
    image = deploying.json("bake", "--yes", *given)["ami"]
    assert image in deploying.text("bake", "--yes", *given)
