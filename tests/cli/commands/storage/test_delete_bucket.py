"""Test that a bucket is deleted with every version, only if a cluster made it, none uses it, and the user agrees."""

import json
from typing import Any

import boto3
import pytest

from bootstrap.contract import CLUSTER_TAG
from cli.main import main
from tests.cli.moto_cluster import REGION


@pytest.fixture
def s3(aws: dict[str, str]) -> Any:
    assert aws["AWS_REGION"] == REGION
    return boto3.client("s3", region_name=REGION)


def make(s3: Any, name: str, **tags: str) -> None:
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    s3.put_bucket_tagging(
        Bucket=name, Tagging={"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}
    )
    for body in (b"1", b"2"):
        s3.put_object(Bucket=name, Key="runs/0", Body=body)
    s3.delete_object(Bucket=name, Key="runs/0")


def bucket_names(s3: Any) -> list[str]:
    return sorted(found["Name"] for found in s3.list_buckets()["Buckets"])


def stack(template: dict[str, Any], *, name: str = "demo") -> None:
    boto3.client("cloudformation", region_name=REGION).create_stack(StackName=name, TemplateBody=json.dumps(template))


def bucket_of_a_stack(name: str) -> dict[str, Any]:
    """Return a template without outputs and parameters."""
    properties = {"BucketName": name, "Tags": [{"Key": CLUSTER_TAG, "Value": "demo"}]}
    return {"Resources": {"B": {"Type": "AWS::S3::Bucket", "Properties": properties}}}


def test_left_bucket_is_listed_and_deleted_with_every_version(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make(s3, "mine", **{CLUSTER_TAG: "demo"})
    make(s3, "foreign", team="vision")
    assert main(["delete-bucket"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [["mine", "demo", "-"]]
    assert main(["delete-bucket", "mine"]) == 2
    assert "use --yes" in capsys.readouterr().err
    assert bucket_names(s3) == ["foreign", "mine"]
    assert main(["delete-bucket", "mine", "--yes"]) == 0
    assert capsys.readouterr().out == "deleted mine, 3 versions\n"
    assert bucket_names(s3) == ["foreign"]
    for name in ("foreign", "nowhere"):
        assert main(["delete-bucket", name, "--yes"]) == 1
        assert f"no bucket {name} in {REGION} that a cluster made" in capsys.readouterr().err
    assert bucket_names(s3) == ["foreign"]


def test_json_lists_buckets_and_counts_deleted_versions(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["delete-bucket", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "region": REGION, "buckets": []}
    make(s3, "unused", **{CLUSTER_TAG: "demo"})
    stack(bucket_of_a_stack("ours"), name="our-app")
    assert main(["delete-bucket", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["buckets"] == [
        {"name": "ours", "cluster": "demo", "used_by": "our-app"},
        {"name": "unused", "cluster": "demo", "used_by": None},
    ]
    assert main(["delete-bucket", "unused", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "region": REGION, "bucket": "unused", "versions": 3}


@pytest.mark.parametrize("is_complete", [True, False], ids=["adopted", "being created"])
def test_bucket_of_a_stack_is_kept(s3: Any, capsys: pytest.CaptureFixture[str], *, is_complete: bool) -> None:
    if is_complete:
        make(s3, "mine", **{CLUSTER_TAG: "demo"})
        stack({"Resources": {"Q": {"Type": "AWS::SQS::Queue"}}, "Outputs": {"ClusterBucket": {"Value": "mine"}}})
    else:
        stack(bucket_of_a_stack("mine"))
    assert main(["delete-bucket", "mine", "--yes"]) == 1
    assert "mine is in use by stack demo: run cdk destroy" in capsys.readouterr().err
    assert bucket_names(s3) == ["mine"]


def test_bucket_of_a_stack_of_another_name_is_kept(s3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stack(bucket_of_a_stack("mine"), name="our-app")
    assert main(["delete-bucket"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [["mine", "demo", "our-app"]]
    assert main(["delete-bucket", "mine", "--yes"]) == 1
    assert "mine is in use by stack our-app: run cdk destroy" in capsys.readouterr().err
    assert bucket_names(s3) == ["mine"]
