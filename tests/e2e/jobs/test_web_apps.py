"""Test that TensorBoard and Jupyter run on the master during the command, and are reachable only from the laptop."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.e2e.support.deployed_cluster import DeployedCluster
from tests.e2e.support.jupyter import FILES, address_and_token
from tests.e2e.support.user_venv import make_venv
from tests.waiting import wait_until
from trainer.metrics.metric_writers import open_writers

TIMEOUT_S: Final = 120


@pytest.fixture(scope="module")
def tools(cluster: DeployedCluster) -> str:
    """Create the user's own environment on the master, with the real TensorBoard."""
    make_venv(cluster.user, "tools", "tensorboard", files=FILES)
    return "tools"


@contextmanager
def running_command(cluster: DeployedCluster, *args: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        ["dlcluster", *args], env=dict(cluster.user.environment), stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def command_lines() -> Iterator[bytes]:
    """Yield the command line of each process of this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has ended.
            yield path.read_bytes()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def wait_until_nothing_is_left(cluster: DeployedCluster, module: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while left := cluster.on("deeplearning-master", f"pgrep -af -- '-m [{module[0]}]{module[1:]}' || true"):
        assert time.monotonic() < deadline, f"waited {TIMEOUT_S} s for this to end: {left}"
        time.sleep(0.2)


@pytest.fixture
def logdir(cluster: DeployedCluster, tmp_path: Path) -> str:
    """Copy metrics, as the trainer writes them, to a directory on the master."""
    with open_writers(metrics=None, tensorboard=str(tmp_path / "my runs/first")) as writers:
        writers.write({"train/loss": 0.5}, epoch=0, samples=64)
    cluster.user.run(
        "scp", "-q", "-r", "-F", str(cluster.user.ssh_config), str(tmp_path / "my runs"), "deeplearning-master:"
    )
    return "my runs"


def test_tensorboard_shows_a_job_s_figures(cluster: DeployedCluster, tools: str, logdir: str) -> None:
    refused = subprocess.run(
        ["dlcluster", "tensorboard"], env=dict(cluster.user.environment), capture_output=True, text=True, timeout=120
    )
    install = "sudo /opt/pytorch/bin/python -m pip install tensorboard=="
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert refused.stderr.startswith(
        f"dlcluster: /opt/pytorch on the master has no tensorboard; install it with dlcluster ssh -- {install}"
    )
    with running_command(cluster, "tensorboard", "--venv", tools, "--logdir", logdir) as board:
        address = first_line(board).split()[0]

        def runs() -> list[str]:
            with urlopen(f"{address}data/runs", timeout=TIMEOUT_S) as answer:
                return list(json.load(answer))

        # TensorBoard answers before it has read the directory.
        wait_until(runs, "a run", timeout_s=TIMEOUT_S)
        assert runs() == ["first"]
        board.send_signal(signal.SIGINT)
        assert board.wait(TIMEOUT_S) == 130
    wait_until_nothing_is_left(cluster, "tensorboard")


def test_jupyter_needs_its_token_which_no_command_line_shows(cluster: DeployedCluster, tools: str) -> None:
    with running_command(cluster, "jupyter", "--venv", tools) as lab:
        address, token = address_and_token(first_line(lab))
        with urlopen(f"{address}lab?token={token}", timeout=TIMEOUT_S) as answer:
            assert answer.read() == b"/home/ubuntu"
        with pytest.raises(HTTPError, match="403"):
            urlopen(f"{address}lab?token=0", timeout=TIMEOUT_S)
        assert token not in cluster.on("deeplearning-master", "ps -eo args")
        assert not any(token.encode() in args for args in command_lines())
        # As if the laptop had lost power, so that nothing closes the connection.
        lab.kill()
    wait_until_nothing_is_left(cluster, "jupyterlab")
