"""Test that dlcluster waits as long as the setup of new nodes may take."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.errors import EXIT_FAILED
from cli.main import main
from tests.cli.node_groups.nodeless_cluster import NodelessCluster, in_state

HOUR = 3600


class Clock:
    """Time that passes only in pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 60 * seconds


@pytest.fixture(autouse=True)
def clock(deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make waits end at once, in a cluster whose nodes never join."""
    clock = Clock()
    monkeypatch.setattr("cli.node_groups.waiting.time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep))


def deploy_setup(deployed: NodelessCluster, *, timeout_s: int) -> None:
    changed = copy.deepcopy(deployed.deployed)
    changed["Outputs"]["ClusterSetup"] = {"Value": f"s3://assets/setup.zip {'a' * 64} {timeout_s}"}
    deployed.stacks.update(changed, name="demo")
    deployed.deployed = changed


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


def test_resume_waits_longer_if_the_deployed_setup_may_take_longer(
    deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, "paused")
    assert main(["resume"]) == EXIT_FAILED
    assert last_line(capsys).startswith("dlcluster: waited 1800 s for 3 of 3 nodes to join the cluster")
    deploy_setup(deployed, timeout_s=HOUR)
    assert main(["resume"]) == EXIT_FAILED
    assert last_line(capsys).startswith("dlcluster: waited 5400 s for 3 of 3 nodes to join the cluster")


def test_timeout_of_the_command_line_replaces_the_default(
    deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, "paused")
    deploy_setup(deployed, timeout_s=HOUR)
    assert main(["resume", "--timeout", "0"]) == EXIT_FAILED
    assert last_line(capsys).startswith("dlcluster: waited 0 s for ")


def test_resize_waits_for_the_setup_that_it_deploys(
    deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, "paused")

    def deploy(*_words: object, **_named: object) -> int:
        deployed.cdk([])
        deploy_setup(deployed, timeout_s=HOUR)
        return 0

    monkeypatch.setattr("cli.cdk.deploy.run_deploy", deploy)
    assert main(["resize", "3", "--yes"]) == EXIT_FAILED
    assert last_line(capsys).startswith("dlcluster: waited 5400 s for 4 of 4 nodes to join the cluster")
    assert '"worker_count": 3' in Path("cdk.json").read_text()
