"""Test that S3, and a stack, refuse to delete a bucket that is not empty."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.control_plane.harness import Aws, Stacks
from tests.local.control_plane.templates import cluster, group, resource

VERSIONED = {"VersioningConfiguration": {"Status": "Enabled"}}
REFUSED = "The bucket you tried to delete is not empty"


def bucket(policy: str | None = None, **properties: Any) -> dict[str, Any]:
    made = resource("S3::Bucket", **VERSIONED | properties)
    return made | {"DeletionPolicy": policy} if policy else made


def put(s3: Any, name: str) -> None:
    s3.put_object(Bucket=name, Key="checkpoint", Body=b"weights")


def put_over(s3: Any, name: str) -> None:
    put(s3, name)
    put(s3, name)


def put_and_delete(s3: Any, name: str) -> None:
    """Leave what ``aws s3 rm`` leaves in a bucket: a version and a marker above it."""
    put(s3, name)
    s3.delete_object(Bucket=name, Key="checkpoint")


def mark_alone(s3: Any, name: str) -> None:
    put_and_delete(s3, name)
    (version,) = s3.list_object_versions(Bucket=name)["Versions"]
    s3.delete_object(Bucket=name, Key="checkpoint", VersionId=version["VersionId"])


FILLINGS = [put, put_over, put_and_delete, mark_alone]


def empty(s3: Any, name: str) -> None:
    listing = s3.list_object_versions(Bucket=name)
    for version in listing.get("Versions", []) + listing.get("DeleteMarkers", []):
        s3.delete_object(Bucket=name, Key=version["Key"], VersionId=version["VersionId"])


@pytest.fixture
def s3(aws: Aws) -> Iterator[Any]:
    client = aws.client("s3")
    yield client
    for bucket in client.list_buckets()["Buckets"]:
        empty(client, bucket["Name"])
        client.delete_bucket(Bucket=bucket["Name"])


@pytest.mark.parametrize("fill", FILLINGS)
def test_delete_of_a_bucket_that_is_not_empty_is_refused(
    stacks: Stacks, s3: Any, fill: Callable[[Any, str], None]
) -> None:
    stacks.create({"Resources": {"Bucket": bucket()}})
    name = stacks.physical_id("Bucket")
    assert s3.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
    fill(s3, name)
    with pytest.raises(ClientError, match=f"BucketNotEmpty.*{REFUSED}") as refused:
        s3.delete_bucket(Bucket=name)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 409
    empty(s3, name)
    stacks.cloudformation.delete_stack(StackName=stacks.names.pop())
    assert s3.list_buckets()["Buckets"] == []


@pytest.mark.parametrize("fill", FILLINGS)
def test_rollback_fails_over_a_bucket_that_is_not_empty(
    stacks: Stacks, s3: Any, fill: Callable[[Any, str], None]
) -> None:
    stacks.create(cluster(Group=group(1, signals=1), Bucket=bucket("RetainExceptOnCreate")))
    name = stacks.physical_id("Bucket")
    fill(s3, name)
    stacks.signal("Group", "i-1", "FAILURE")
    assert stacks.status() == "ROLLBACK_FAILED"
    (status, reason) = stacks.events("Bucket")[-1]
    assert status == "DELETE_FAILED"
    assert reason.startswith(REFUSED)
    empty(s3, name)
    stacks.cloudformation.delete_stack(StackName="stack")
    assert "stack" not in [found["StackName"] for found in stacks.cloudformation.describe_stacks()["Stacks"]]


def test_rollback_keeps_a_retained_bucket_with_any_content(stacks: Stacks, s3: Any) -> None:
    stacks.create(cluster(Group=group(1, signals=1), Bucket=bucket("Retain")))
    name = stacks.physical_id("Bucket")
    put(s3, name)
    stacks.signal("Group", "i-1", "FAILURE")
    assert stacks.status() == "ROLLBACK_COMPLETE"
    assert stacks.events("Bucket")[-1] == ("DELETE_SKIPPED", "")
    assert s3.get_object(Bucket=name, Key="checkpoint")["Body"].read() == b"weights"


def test_deletion_fails_over_a_bucket_that_is_not_empty(stacks: Stacks, s3: Any) -> None:
    stacks.create({"Resources": {"Bucket": bucket()}})
    put(s3, stacks.physical_id("Bucket"))
    stacks.cloudformation.delete_stack(StackName="stack")
    assert stacks.status() == "DELETE_FAILED"
    empty(s3, stacks.physical_id("Bucket"))


def test_bucket_versioning_and_rules_follow_the_template(stacks: Stacks, s3: Any) -> None:
    rule = {"Id": "old", "Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": 30}}
    plain = {"Resources": {"Bucket": resource("S3::Bucket")}}
    stacks.create(plain)
    name = stacks.physical_id("Bucket")
    assert "Status" not in s3.get_bucket_versioning(Bucket=name)
    tags = [{"Key": "team", "Value": "vision"}]
    stacks.update({"Resources": {"Bucket": bucket(LifecycleConfiguration={"Rules": [rule]}, Tags=tags)}})
    assert stacks.status() == "UPDATE_COMPLETE"
    assert stacks.physical_id("Bucket") == name
    assert s3.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
    (rule,) = s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"]
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert s3.get_bucket_tagging(Bucket=name)["TagSet"] == tags


def test_tagging_api_lists_the_buckets_of_its_region(aws: Aws, s3: Any) -> None:
    s3.create_bucket(Bucket="near")
    s3.create_bucket(Bucket="far", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    for name in ("near", "far"):
        s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": [{"Key": "team", "Value": "vision"}]})
    listed = aws.client("resourcegroupstaggingapi").get_resources(ResourceTypeFilters=["s3"])
    assert [mapping["ResourceARN"] for mapping in listed["ResourceTagMappingList"]] == ["arn:aws:s3:::near"]
