"""Test what resize prints, writes and deploys."""

import json
from pathlib import Path

import pytest

from cli.aws.deployed_template import read_template
from cli.errors import EXIT_FAILED
from cli.main import main
from stacks.settings.nodes import declared_sizes
from tests.cli.node_groups.nodeless_cluster import CDK_JSON, DECLARED, NAME, NodelessCluster, in_state


@pytest.mark.parametrize(
    ("state", "workers", "message"),
    [
        ("as deployed", "3", ["worker_count 2 -> 3", "CloudFormation will start 1 node"]),
        ("as deployed", "1", ["worker_count 2 -> 1", "CloudFormation will terminate the newest node"]),
        ("as deployed", "2", ["worker_count stays 2", "the deploy starts and terminates no node"]),
        (
            "paused",
            "3",
            [
                "worker_count 2 -> 3",
                "the cluster is paused: CloudFormation will start 3 nodes",
                "workers do nothing without a master: dlcluster resume starts it",
            ],
        ),
    ],
)
def test_resize_prints_the_changes_of_the_deploy(
    deployed: NodelessCluster, state: str, workers: str, message: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, state)
    assert main(["resize", workers, "--yes", "-c", "key_name=me"]) == 0
    output = capsys.readouterr().err.splitlines()
    assert output[: len(message)] == [f"dlcluster: {line}" for line in message]
    assert output[len(message)].startswith("dlcluster: now 0.")
    assert output[len(message) + 1] == f"dlcluster: demo in us-east-1: changing to {workers} workers"
    assert deployed.lines == [["cdk", "deploy", "-c", "key_name=me"]]


def test_resize_changes_nothing_when_the_sizes_would_be_refused(
    deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    in_state(deployed, "paused")
    assert main(["resize", "2", "--yes", "-c", "min_workers=1"]) == EXIT_FAILED
    output = capsys.readouterr().err.splitlines()
    assert "Auto Scaling will refuse the sizes" in output[0]
    assert output[-1] == "dlcluster: worker_count 2 would be refused, nothing was changed: run dlcluster resume first"
    assert (deployed.lines, Path("cdk.json").read_text()) == ([], CDK_JSON)


def test_resize_of_a_paused_cluster_needs_no_second_look_at_the_stack(
    deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_state(deployed, "paused")
    before = read_template(deployed.stacks.cloudformation, NAME)
    monkeypatch.setattr("cli.commands.cluster.resize.read_template", lambda *_: before)
    assert main(["resize", "3", "--yes"]) == 0
    assert deployed.sizes() == declared_sizes(worker_count=3, needed_workers=3)


def test_resize_without_a_deploy_prints_its_line(deployed: NodelessCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resize", "5", "--no-deploy", "--json"]) == 0
    output = capsys.readouterr()
    assert output.err.splitlines()[-1] == "dlcluster: cdk.json has worker_count 5 now; to apply it, run: cdk deploy"
    found = json.loads(output.out)
    assert (found["worker_count"], found["deployed_worker_count"], found["deployed"]) == (5, 2, False)
    assert (deployed.lines, deployed.sizes()) == ([], DECLARED)


def test_failed_deploy_leaves_the_sizes_unchanged(
    deployed: NodelessCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_words: object, **_options: object) -> object:
        return type("FakeProcess", (), {"returncode": 1})

    monkeypatch.setattr("cli.cdk.deploy.subprocess.run", refuse)
    assert main(["resize", "3", "--yes"]) == EXIT_FAILED
    assert "cdk deploy failed with exit code 1; cdk.json keeps worker_count 3" in capsys.readouterr().err
    assert deployed.sizes() == DECLARED
