"""Test which of several clusters a command takes."""

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from cli.errors import EXIT_FAILED, EXIT_NO_CLUSTER, EXIT_USAGE
from cli.main import main
from tests.cli.moto_cluster import KEY, REGION, Deploy, error_line


def test_cluster_chooses_among_several(deploy: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    deploy("one")
    deploy("two", private=["10.1.0.4"], host_keys=[KEY])
    assert main(["--cluster", "two", "status"]) == 0
    assert capsys.readouterr().out.startswith("two: 1 of 1 nodes")
    assert main(["status", "--cluster", "one"]) == 0
    assert capsys.readouterr().out.startswith("one: 3 of 3 nodes")
    assert main(["status"]) == EXIT_USAGE
    assert error_line(capsys) == "more than one cluster in eu-west-1, choose with --cluster: one, two"
    assert main(["status", "--cluster", "three"]) == EXIT_NO_CLUSTER
    assert error_line(capsys) == "no cluster 'three' in eu-west-1; clusters there: one, two"


@pytest.mark.parametrize(
    ("content", "chosen"),
    [
        ('{"context": {"cluster": {"cluster_name": "two"}}}', "two"),
        ('{"context": {"cluster": {"cluster_name": "gone"}}}', None),
        ('{"context": {"cluster": {"cluster_name": 2}}}', None),
        ('{"context": {"other": 1}}', None),
        ("{", None),
    ],
)
def test_settings_here_choose_among_several_clusters(
    content: str,
    chosen: str | None,
    deploy: Deploy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deploy("one")
    deploy("two", private=["10.1.0.4"], host_keys=[KEY])
    monkeypatch.chdir(tmp_path)
    Path("cdk.json").write_text(content)
    assert main(["status"]) == (0 if chosen else EXIT_USAGE)
    if chosen:
        assert capsys.readouterr().out.startswith(f"{chosen}: 1 of 1 nodes")
    else:
        assert error_line(capsys) == "more than one cluster in eu-west-1, choose with --cluster: one, two"
    assert main(["--cluster", "one", "status"]) == 0
    assert capsys.readouterr().out.startswith("one: 3 of 3 nodes")


def test_user_who_may_not_list_stacks_is_told_to_name_the_cluster(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(cloudformation: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not yours"}}, "DescribeStacks")

    deploy("one")
    monkeypatch.setattr("cli.aws.clusters.find_stacks", refuse)
    refused = "AWS refused DescribeStacks: AccessDenied: not yours"
    assert main(["--region", REGION, "status"]) == EXIT_FAILED
    assert error_line(capsys) == f"{refused}; name the cluster: dlcluster --region {REGION} --cluster NAME status"
    assert main(["--cluster", "two", "status"]) == EXIT_FAILED
    assert error_line(capsys) == refused
