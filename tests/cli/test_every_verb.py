"""Test every verb's answer when AWS or the cluster is not as required: one line, with a specific exit code."""

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.cloudformation.models import cloudformation_backends
from moto.core.models import DEFAULT_ACCOUNT_ID

from bootstrap.contract import STACK_DESCRIPTION
from cli.aws.clusters import UnfinishedStack, find_clusters
from cli.aws.scaling import ScalingGroups
from cli.errors import EXIT_CREDENTIALS, EXIT_FAILED, EXIT_NO_CLUSTER, EXIT_USAGE, CredentialsError
from cli.main import main
from cli.verb_group import VERBS
from cli.verbs.cluster import list as list_verb
from tests.cli.conftest import KEY, REGION, Deploy, error_line, put_members

LINES = {
    "list": "list",
    "status": "status --json",
    "why": "why",
    "run": "run --no-sync -- true",
    "jobs": "jobs --json",
    "logs": "logs -f",
    "stop": "stop 2026",
    "push": "push",
    "pull": "pull out",
    "ssh": "ssh -- true",
    "allow-ip": "allow-ip",
    "tunnel": "tunnel master 6006",
    "tensorboard": "tensorboard",
    "jupyter": "jupyter",
    "ssh-config": "ssh-config",
    "known-hosts": "known-hosts",
    "policy": "policy",
    "cost": "cost",
    "pause": "pause --yes",
    "resume": "resume",
    "setup": "setup",
    "check": "check",
}
ON_MASTER = (
    "run",
    "jobs",
    "logs",
    "stop",
    "push",
    "pull",
    "ssh",
    "tunnel",
    "tensorboard",
    "jupyter",
    "ssh-config",
    "setup",
    "check",
)
OF_ONE_CLUSTER = [verb for verb in LINES if verb not in ("list", "why")]
"""Verbs about one cluster; why also explains stacks that are no cluster, and list has nothing to choose."""


@pytest.fixture(autouse=True)
def _in_project_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws: dict[str, str]) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def test_every_verb_is_tested_here_or_elsewhere() -> None:
    others = {
        "preflight",
        "completion",
        "ssm-proxy",
        "resize",
        "extend",
        "up",
        "delete-bucket",
        "delete-storage",
        "bake",
    }
    assert {*LINES, *others} == VERBS.keys()


def credentials_advice(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return preflight's message about the same problem."""
    Path("cdk.json").write_text('{"context": {"cluster": {"cluster_name": "demo"}}}')
    assert main(["preflight"]) == EXIT_FAILED
    Path("cdk.json").unlink()
    return capsys.readouterr().out.removeprefix("problem  credentials").strip()


@pytest.mark.parametrize("verb", LINES)
@pytest.mark.parametrize("trouble", ["missing", "no such profile"])
def test_missing_credentials_are_reported_with_advice(
    verb: str, trouble: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    if trouble == "no such profile":
        monkeypatch.setenv("AWS_PROFILE", "nope")
    assert main(LINES[verb].split()) == EXIT_CREDENTIALS
    output = error_line(capsys)
    reason = "Unable to locate credentials" if trouble == "missing" else "The config profile (nope) could not be found"
    assert output == f"no AWS credentials: {reason}: {CredentialsError.fix}"
    assert credentials_advice(capsys, monkeypatch) == output


@pytest.mark.parametrize("verb", LINES)
@pytest.mark.parametrize(
    ("code", "place"),
    [("ExpiredToken", ""), ("InvalidClientTokenId", " (or the region eu-west-1 is not enabled for the account)")],
    ids=["expired", "region not enabled"],
)
def test_refused_credentials_are_reported(
    verb: str, code: str, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: object, operation: str, parameters: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, operation)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    assert main(LINES[verb].split()) == EXIT_CREDENTIALS
    tail = f": {code}: no{place}: {CredentialsError.fix}"
    assert error_line(capsys).endswith(tail)
    assert credentials_advice(capsys, monkeypatch).endswith(tail)


@pytest.mark.parametrize("verb", LINES)
def test_missing_region_is_a_usage_error(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_REGION")
    assert main(LINES[verb].split()) == EXIT_USAGE
    assert error_line(capsys) == "no region given: use --region or set AWS_REGION"


@pytest.mark.parametrize("verb", OF_ONE_CLUSTER)
def test_missing_cluster_is_reported(verb: str, deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    """The region is the wrong one: it has no cluster at all, or only another one."""
    assert main(["--region", "us-east-2", *LINES[verb].split()]) == EXIT_NO_CLUSTER
    assert error_line(capsys).startswith("no cluster in us-east-2 (--region or AWS_REGION selects another); ")
    deploy("one")
    assert main(["--cluster", "two", *LINES[verb].split()]) == EXIT_NO_CLUSTER
    assert error_line(capsys) == "no cluster 'two' in eu-west-1, there is: one"


@pytest.mark.parametrize("verb", OF_ONE_CLUSTER)
def test_ambiguous_cluster_is_reported(verb: str, deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy("one")
    deploy("two", private=["10.1.0.4"], host_keys=[KEY])
    assert main(LINES[verb].split()) == EXIT_USAGE
    assert error_line(capsys) == "more than one cluster in eu-west-1, choose with --cluster: one, two"


@pytest.mark.parametrize("verb", ON_MASTER)
def test_each_verb_on_the_master_reports_a_missing_master(
    verb: str, deploy: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = deploy()
    row = {"instance_id": fleet.instance_ids[1], "address": "10.0.1.20", "node_type": "worker", "host_key": KEY}
    put_members(fleet.table, [{"node_index": 2, **row}], desired_nodes=3)
    assert main(LINES[verb].split()) == EXIT_FAILED
    assert error_line(capsys) == "the cluster has no master now: it may be starting or being replaced"


def test_a_paused_cluster_is_named_where_the_master_is_looked_for(
    deploy: Deploy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = deploy()
    row = {"instance_id": fleet.instance_ids[1], "address": "10.0.1.20", "node_type": "worker", "host_key": KEY}
    put_members(fleet.table, [{"node_index": 2, **row}], desired_nodes=3)
    paused = ScalingGroups(names=("g",), instance_ids=(), desired=0, since=datetime.now(timezone.utc))
    monkeypatch.setattr("cli.sizes.pause.find_groups", lambda *_: paused)
    assert main(LINES["logs"].split()) == EXIT_FAILED
    assert error_line(capsys) == "the cluster is paused: dlcluster resume brings its nodes back"


def test_the_list_continues_after_a_stack_with_odd_outputs(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy("one")
    found = [*find_clusters(boto3.client("cloudformation", region_name=REGION))]
    monkeypatch.setattr(list_verb, "find_stacks", lambda _: [replace(found[0], name="-odd\x1b"), *found])
    assert main(["list"]) == 0
    got = capsys.readouterr()
    assert [line.split()[0] for line in got.out.splitlines()] == ["CLUSTER", "one"]
    assert got.err.startswith("dlcluster: not listed: output ClusterName of stack one-stack must be a letter")
    assert "\x1b" not in got.err


def test_list_shows_the_clusters_of_the_region(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr() == ("", "dlcluster: no cluster in eu-west-1\n")
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


def test_an_explanation_shows_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = UnfinishedStack(name="two\x1b[2J", status="DELETE_FAILED", created="2026-01-01T00:00:00Z")
    monkeypatch.setattr(list_verb, "find_stacks", lambda _cloudformation: [hostile])
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
def test_a_cluster_that_is_being_created_or_failed_is_listed_and_explained(
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
            each for each in cloudformation_backends[DEFAULT_ACCOUNT_ID][REGION].stacks.values() if each.name == name
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
