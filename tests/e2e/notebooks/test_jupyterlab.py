"""Test ``dlcluster jupyter`` with the real JupyterLab, in the image's PyTorch environment on the master.

``make soak`` runs it: wheels.py needs the internet once, and the local AWS has none.
"""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

import pytest

from cli.commands.access.jupyter import PACKAGE
from tests.e2e.notebooks.kernel import call, run_cell
from tests.e2e.support.deployed_cluster import DeployedCluster
from tests.e2e.support.jupyter import address_and_token
from tests.waiting import wait_until

pytestmark = pytest.mark.soak

MASTER: Final = "deeplearning-master"
END_S: Final = 60.0
PIP_CONF: Final = "[global]\nno-index = true\nfind-links = /home/ubuntu/wheels\n"
CELL: Final = "import os, sys, torch\nprint(sys.executable, os.getcwd(), torch.ones(3).sum().item())"


def jupyter(cluster: DeployedCluster) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        ["dlcluster", "jupyter"], env=dict(cluster.user.environment), stdout=pipe, stderr=pipe, text=True
    )


@pytest.fixture(scope="module")
def wheels(cluster: DeployedCluster) -> Path:
    """Put the wheels onto the master, where pip finds them as it finds PyPI with an internet."""
    wheels = os.environ["JUPYTER_WHEELS"]
    cluster.user.run("scp", "-q", "-r", "-F", str(cluster.user.ssh_config), wheels, f"{MASTER}:wheels")
    cluster.on(MASTER, f"printf %s {shlex.quote(PIP_CONF)} | sudo tee /etc/pip.conf")
    return Path(wheels)


@pytest.fixture(scope="module")
def installed(cluster: DeployedCluster, wheels: Path) -> Path:
    """Install JupyterLab by the command that the command prints without it; return the wheels."""
    refused = jupyter(cluster)
    _, message = refused.communicate(timeout=120)
    assert refused.returncode == 1, message
    found = re.search(r"install it with (dlcluster ssh -- .*), or choose", message)
    assert found, message
    assert found[1].endswith(f" -m pip install {PACKAGE}")
    cluster.user.run(*shlex.split(found[1]))
    return wheels


@pytest.fixture
def lab(cluster: DeployedCluster, installed: Path) -> Iterator["subprocess.Popen[str]"]:
    with jupyter(cluster) as process:
        yield process
        process.kill()


def is_nothing_left(cluster: DeployedCluster) -> bool:
    return cluster.on(MASTER, "pgrep -af -- '-m [j]upyterlab|[i]pykernel' || true") == ""


def test_cell_runs_in_the_pytorch_environment_through_the_tunnel(
    cluster: DeployedCluster, lab: "subprocess.Popen[str]", installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lab.stdout
    address, token = address_and_token(lab.stdout.readline())
    with pytest.raises(HTTPError, match="403"):
        call(address, "api/kernels", token="0" * len(token))
    assert call(address, "api/kernels", token=token) == []
    printed = run_cell(address, CELL, token=token, wheels=installed, patch=monkeypatch)
    assert printed == "/opt/pytorch/bin/python /home/ubuntu 3.0\n"
    assert token not in cluster.on(MASTER, "ps -eo args")
    lab.send_signal(signal.SIGINT)
    assert lab.wait(60) == 130
    wait_until(lambda: is_nothing_left(cluster), "the end of JupyterLab and its kernel", timeout_s=END_S, every_s=0.5)
