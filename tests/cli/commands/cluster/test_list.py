"""Test what ``dlcluster list`` shows of complete, new and failed clusters."""

import json
from dataclasses import replace

import boto3
import pytest
from moto.cloudformation.models import cloudformation_backends
from moto.core.models import DEFAULT_ACCOUNT_ID

from bootstrap.contract import STACK_DESCRIPTION
from cli.aws.clusters import UnfinishedStack, find_clusters
from cli.commands.cluster import list as list_command
from cli.errors import EXIT_NO_CLUSTER
from cli.main import main
from tests.cli.moto_cluster import KEY, REGION, Deploy

pytestmark = pytest.mark.usefixtures("aws")


def test_list_continues_after_a_stack_with_odd_outputs(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy("one")
    found = [*find_clusters(boto3.client("cloudformation", region_name=REGION))]
    monkeypatch.setattr(list_command, "find_stacks", lambda _: [replace(found[0], name="-odd\x1b"), *found])
    assert main(["list"]) == 0
    got = capsys.readouterr()
    assert [line.split()[0] for line in got.out.splitlines()] == ["CLUSTER", "one"]
    assert got.err.startswith("dlcluster: not listed: output ClusterName of stack one-stack must be a letter")
    assert "\x1b" not in got.err


def test_list_shows_the_clusters_of_the_region(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr() == ("", "dlcluster: no cluster in eu-west-1; cdk deploy creates one\n")
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "region": REGION, "clusters": []}
    deploy("one")
    deploy("two", private=["10.1.0.4"], host_keys=[KEY])
    assert main(["list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["CLUSTER", "NODES", "STACK", "STATUS", "CREATED"]
    assert [row.split()[:4] for row in rows] == [
        ["one", "-", "one-stack", "CREATE_COMPLETE"],
        ["two", "-", "two-stack", "CREATE_COMPLETE"],
    ]
    assert main(["list", "--json", "--cluster", "two"]) == 0
    [found] = json.loads(capsys.readouterr().out)["clusters"]
    created = boto3.client("cloudformation", region_name=REGION).describe_stacks(StackName="two-stack")["Stacks"][0]
    assert found == {
        "name": "two", "desired_nodes": None, "stack": "two-stack", "status": "CREATE_COMPLETE",
        "created": f"{created['CreationTime']:%Y-%m-%dT%H:%M:%SZ}", "explanation": None,
    }  # fmt: skip


def test_list_of_an_absent_cluster_is_empty_and_exits_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json", "--cluster", "two"]) == EXIT_NO_CLUSTER
    got = capsys.readouterr()
    assert json.loads(got.out)["clusters"] == []
    assert got.err == "dlcluster: no cluster 'two' in eu-west-1\n"


def test_no_time_is_cut_on_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = UnfinishedStack(name="deeplearning", status="CREATE_COMPLETE", created="2026-11-25T02:26:17Z")
    monkeypatch.setattr(list_command, "find_stacks", lambda _cloudformation: [stack])
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["list"]) == 0
    assert "2026-11-25 02:26" in capsys.readouterr().out


def test_explanation_shows_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = UnfinishedStack(name="two\x1b[2J", status="DELETE_FAILED", created="2026-01-01T00:00:00Z")
    monkeypatch.setattr(list_command, "find_stacks", lambda _cloudformation: [hostile])
    assert main(["list"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "explanation"),
    [
        ("CREATE_IN_PROGRESS", None),
        (
            "ROLLBACK_COMPLETE",
            "the first deploy failed and was undone, so there is no cluster and no node runs; dlcluster why --region "
            "eu-west-1 --cluster two explains it; cdk deploy tries again, cdk destroy removes the empty stack",
        ),
        (
            "DELETE_FAILED",
            "the deletion stopped half-way, so what is left may cost money; dlcluster why --region eu-west-1 --cluster "
            "two names what is in the way; remove that, then cdk destroy",
        ),
        ("REVIEW_IN_PROGRESS", "nothing was created yet; cdk deploy continues it, cdk destroy removes it"),
    ],
)
def test_cluster_that_is_being_created_or_failed_is_listed_and_explained(
    status: str,
    explanation: str | None,
    deploy: Deploy,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deploy("one")
    cloudformation = boto3.client("cloudformation", region_name=REGION)
    topic = {"Topic": {"Type": "AWS::SNS::Topic"}}
    for name, description in (("two", STACK_DESCRIPTION), ("other", "of somebody else")):
        body = json.dumps({"Description": description, "Resources": topic})
        cloudformation.create_stack(StackName=name, TemplateBody=body)
        stack = next(
            created
            for created in cloudformation_backends[DEFAULT_ACCOUNT_ID][REGION].stacks.values()
            if created.name == name
        )
        stack.status = status
    assert main(["list"]) == 0
    _, *printed = capsys.readouterr().out.splitlines()
    rows = [line.split()[:4] for line in printed[:2]]
    assert rows == [["one", "-", "one-stack", "CREATE_COMPLETE"], ["two", "-", "two", status]]
    assert printed[2:] == ([] if explanation is None else [f"two is {status}: {explanation}"])
    assert main(["list", "--json", "--cluster", "two"]) == 0
    [found] = json.loads(capsys.readouterr().out)["clusters"]
    assert (found["name"], found["desired_nodes"], found["status"]) == ("two", None, status)
    assert found["explanation"] == explanation
