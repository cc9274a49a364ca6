"""Test every command's answer when AWS or the cluster is not as required: one line, with a specific exit code."""

from datetime import datetime, timezone
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from cli.aws.scaling import ScalingGroups
from cli.command_group import COMMANDS
from cli.errors import EXIT_CREDENTIALS, EXIT_FAILED, EXIT_NO_CLUSTER, EXIT_USAGE, ClusterError, CredentialsError
from cli.main import main
from tests.cli.command_lines import AMBIGUOUS_WITH_TWO, LINES, NEEDS_A_CLUSTER, ON_MASTER, prepare_command_line
from tests.cli.moto_cluster import KEY, REGION, Deploy, error_line, put_members


@pytest.fixture(autouse=True)
def _in_project_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws: dict[str, str]) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def test_every_command_is_tested_here() -> None:
    """Preflight reports troubles as its findings, and completion calls no AWS."""
    assert {*LINES, "preflight", "completion"} == COMMANDS.keys()


def test_completion_needs_neither_credentials_nor_region(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    assert main(["completion", "bash"]) == 0
    out, err = capsys.readouterr()
    assert ("dlcluster" in out, err) == (True, "")


def test_preflight_without_a_region_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cdk.json").write_text('{"context": {"cluster": {"cluster_name": "demo"}}}')
    monkeypatch.delenv("AWS_REGION")
    assert main(["preflight"]) == EXIT_USAGE
    assert error_line(capsys) == "no region given: use --region or set AWS_REGION"


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("up", EXIT_FAILED, "no zone in the setting zones offers g6.xlarge: eu-west-1a, eu-west-1b; dlcluster"),
        ("delete-bucket mine --yes", EXIT_FAILED, "no bucket mine in us-east-2 that a cluster made: delete another"),
        ("delete-storage fs-00000000000000000 --yes", EXIT_FAILED, "no file system fs-00000000000000000 in us-east-2"),
        ("delete-bucket", 0, "no cluster has made a bucket in us-east-2"),
        ("delete-storage", 0, "no cluster has left a file system in us-east-2"),
    ],
)
def test_command_that_needs_no_cluster_reports_a_wrong_region(
    line: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *words = line.split()
    prepare_command_line(command, region=REGION)
    assert main(["--region", "us-east-2", command, *words]) == code
    assert error_line(capsys).startswith(sentence)


def credentials_advice(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return preflight's message about the same problem."""
    Path("cdk.json").write_text('{"context": {"cluster": {"cluster_name": "demo"}}}')
    assert main(["preflight"]) == EXIT_FAILED
    Path("cdk.json").unlink()
    return capsys.readouterr().out.removeprefix("problem  credentials").strip()


@pytest.mark.parametrize("command", LINES)
@pytest.mark.parametrize("trouble", ["missing", "no such profile"])
def test_missing_credentials_are_reported_with_advice(
    command: str, trouble: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    if trouble == "no such profile":
        monkeypatch.setenv("AWS_PROFILE", "nope")
    assert main(prepare_command_line(command, region=REGION)) == EXIT_CREDENTIALS
    output = error_line(capsys)
    reason = "Unable to locate credentials" if trouble == "missing" else "The config profile (nope) could not be found"
    assert output == f"no AWS credentials: {reason}: {CredentialsError.fix}"
    assert credentials_advice(capsys, monkeypatch) == output


@pytest.mark.parametrize("command", LINES)
@pytest.mark.parametrize(
    ("code", "place"),
    [("ExpiredToken", ""), ("InvalidClientTokenId", " (or the region eu-west-1 is not enabled for the account)")],
    ids=["expired", "region not enabled"],
)
def test_refused_credentials_are_reported(
    command: str, code: str, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: object, operation: str, parameters: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, operation)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", refuse)
    assert main(prepare_command_line(command, region=REGION)) == EXIT_CREDENTIALS
    tail = f": {code}: no{place}: {CredentialsError.fix}"
    assert error_line(capsys).endswith(tail)
    assert credentials_advice(capsys, monkeypatch).endswith(tail)


@pytest.mark.parametrize("command", LINES)
def test_missing_region_is_a_usage_error(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_REGION")
    assert main(prepare_command_line(command, region=REGION)) == EXIT_USAGE
    assert error_line(capsys) == "no region given: use --region or set AWS_REGION"


@pytest.mark.parametrize("command", NEEDS_A_CLUSTER)
def test_missing_cluster_is_reported(command: str, deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    """The region is the wrong one: it has no cluster at all, or only another one."""
    words = prepare_command_line(command, region=REGION)
    assert main(["--region", "us-east-2", *words]) == EXIT_NO_CLUSTER
    assert error_line(capsys).startswith("no cluster in us-east-2 (--region or AWS_REGION selects another); ")
    deploy("one")
    assert main([*(["--cluster", "two"] if command in AMBIGUOUS_WITH_TWO else []), *words]) == EXIT_NO_CLUSTER
    assert error_line(capsys) == "no cluster 'two' in eu-west-1; clusters there: one"


@pytest.mark.parametrize(
    ("command", "sentence", "code"),
    [
        ("list", "no cluster 'two' in eu-west-1", EXIT_NO_CLUSTER),
        ("delete-bucket", "no cluster 'two' has made a bucket in eu-west-1", 0),
        ("delete-storage", "no cluster 'two' has left a file system in eu-west-1", 0),
    ],
)
def test_empty_list_names_the_cluster_that_it_is_for(
    command: str, sentence: str, code: int, deploy: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy("one")
    assert main(["--cluster", "two", command]) == code
    assert error_line(capsys) == sentence


@pytest.mark.parametrize("command", AMBIGUOUS_WITH_TWO)
def test_ambiguous_cluster_is_reported(command: str, deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy("one")
    deploy("two", private=["10.1.0.4"], host_keys=[KEY])
    assert main(prepare_command_line(command, region=REGION)) == EXIT_USAGE
    assert error_line(capsys) == "more than one cluster in eu-west-1, choose with --cluster: one, two"


@pytest.mark.parametrize("command", AMBIGUOUS_WITH_TWO)
def test_several_clusters_are_looked_up_in_the_settings(
    command: str, deploy: Deploy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(directory: Path) -> None:
        raise ClusterError(f"asked for the settings in {directory}")

    deploy("one")
    deploy("two", private=["10.1.0.4"], host_keys=[KEY])
    monkeypatch.setattr("cli.cdk.context.own_props", refuse)
    assert main(prepare_command_line(command, region=REGION)) == EXIT_FAILED
    assert error_line(capsys) == f"asked for the settings in {Path.cwd()}"


@pytest.mark.parametrize("command", ON_MASTER)
def test_each_command_on_the_master_reports_a_missing_master(
    command: str, deploy: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    moto_cluster = deploy("two")
    row = {"instance_id": moto_cluster.instance_ids[1], "address": "10.0.1.20", "node_type": "worker", "host_key": KEY}
    put_members(moto_cluster.table, [{"node_index": 2, **row}], desired_nodes=3)
    assert main(prepare_command_line(command, region=REGION)) == EXIT_FAILED
    assert error_line(capsys) == "the cluster has no master now: it may be starting or being replaced"


def test_paused_cluster_is_named_where_the_master_is_looked_for(
    deploy: Deploy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moto_cluster = deploy()
    row = {"instance_id": moto_cluster.instance_ids[1], "address": "10.0.1.20", "node_type": "worker", "host_key": KEY}
    put_members(moto_cluster.table, [{"node_index": 2, **row}], desired_nodes=3)
    paused = ScalingGroups(names=("g",), instance_ids=(), desired=0, since=datetime.now(timezone.utc))
    monkeypatch.setattr("cli.node_groups.paused_error.find_groups", lambda *_: paused)
    assert main(LINES["logs"].split()) == EXIT_FAILED
    assert error_line(capsys) == "the cluster is paused: dlcluster resume brings its nodes back"
