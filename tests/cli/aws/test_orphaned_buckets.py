"""Test how ``dlcluster why`` reports orphaned buckets, which clusters left behind, and run the lines that it prints."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bootstrap.contract import CLUSTER_TAG
from tests.local.control_plane.harness import REGION, REPOSITORY, Aws, Stacks
from tests.local.control_plane.templates import cluster, group, resource

LIMIT_S = 180
HEADING = (
    "buckets left by earlier clusters named vision, not in use; "
    "each command deletes one bucket, after asking for confirmation:\n"
)


def kept(policy: str = "Retain") -> dict[str, Any]:
    tags = [{"Key": CLUSTER_TAG, "Value": "vision"}]
    versioned = {"Status": "Enabled"}
    return resource("S3::Bucket", Tags=tags, VersioningConfiguration=versioned) | {"DeletionPolicy": policy}


def in_shell(local_aws: Aws, line: str) -> str:
    """Run a line with the product's requirements installed, and return its output."""
    bins = f"{REPOSITORY / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        "PATH": bins,
        "AWS_ENDPOINT_URL": local_aws.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    done = subprocess.run(
        ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def why(local_aws: Aws) -> str:
    return in_shell(local_aws, "dlcluster why --cluster vision")


def lines(report: str) -> list[str]:
    """Return the shell lines at the end of a report."""
    _, _, message = report.partition(HEADING)
    return [line.strip() for line in message.splitlines()]


@pytest.fixture
def stacks(local_aws: Aws) -> Iterator[Stacks]:
    made = Stacks(aws=local_aws)
    yield made
    for name in made.names:
        made.cloudformation.delete_stack(StackName=name)


@pytest.fixture
def s3(local_aws: Aws) -> Iterator[Any]:
    client = local_aws.client("s3")
    yield client
    for bucket in client.list_buckets()["Buckets"]:
        pages = client.get_paginator("list_object_versions").paginate(Bucket=bucket["Name"])
        for version in [
            entry for page in pages for kind in ("Versions", "DeleteMarkers") for entry in page.get(kind, [])
        ]:
            client.delete_object(Bucket=bucket["Name"], Key=version["Key"], VersionId=version["VersionId"])
        client.delete_bucket(Bucket=bucket["Name"])


def fill(s3: Any, name: str) -> None:
    """Store several versions of each object, and a delete marker on one; moto cannot list a second page of them."""
    for number in range(9):
        s3.put_object(Bucket=name, Key=f"runs/{number % 3}", Body=b"weights")
    s3.delete_object(Bucket=name, Key="runs/0")


def test_orphaned_buckets_are_listed_and_removed(local_aws: Aws, stacks: Stacks, s3: Any) -> None:
    stacks.create(cluster(Group=group(1, signals=1), Bucket=kept()), name="vision")
    rolled_back = stacks.physical_id("Bucket", name="vision")
    fill(s3, rolled_back)
    assert HEADING not in why(local_aws)
    stacks.signal("Group", "i-1", "FAILURE", name="vision")
    assert stacks.status("vision") == "ROLLBACK_COMPLETE"
    stacks.cloudformation.delete_stack(StackName="vision")
    stacks.create({"Resources": {"Bucket": kept()}}, name="vision")
    own = stacks.physical_id("Bucket", name="vision")
    (line,) = lines(why(local_aws))
    assert rolled_back in line
    assert own not in line
    in_shell(local_aws, f"{line} --yes")
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == [own]
    stacks.cloudformation.delete_stack(StackName="vision")
    (line,) = lines(why(local_aws))
    in_shell(local_aws, f"{line} --yes")
    assert s3.list_buckets()["Buckets"] == []
    assert HEADING not in why(local_aws)


def test_bucket_that_another_cluster_has_adopted_is_not_named(local_aws: Aws, stacks: Stacks, s3: Any) -> None:
    stacks.create({"Resources": {"Bucket": kept()}}, name="vision")
    name = stacks.physical_id("Bucket", name="vision")
    stacks.cloudformation.delete_stack(StackName="vision")
    adopting = {
        "Parameters": {"CreatedWith": {"Type": "String", "Default": name}},
        "Resources": cluster(Group=group(1, signals=1))["Resources"],
    }
    stacks.create(adopting, name="speech")
    assert stacks.status("speech") == "CREATE_IN_PROGRESS"
    assert lines(why(local_aws)) == []
    stacks.cloudformation.delete_stack(StackName="speech")
    assert len(lines(why(local_aws))) == 1
    assert s3.list_buckets()["Buckets"]


def test_command_that_keeps_old_versions_cannot_delete_the_bucket(local_aws: Aws, stacks: Stacks, s3: Any) -> None:
    """Show why the line is not shorter: the local AWS refuses what S3 refuses."""
    stacks.create({"Resources": {"Bucket": kept()}}, name="vision")
    name = stacks.physical_id("Bucket", name="vision")
    s3.put_object(Bucket=name, Key="runs/0", Body=b"weights")
    stacks.cloudformation.delete_stack(StackName="vision")
    with pytest.raises(AssertionError, match="BucketNotEmpty"):
        in_shell(local_aws, f"aws s3 rb --force s3://{name}")
    (line,) = lines(why(local_aws))
    in_shell(local_aws, f"{line} --yes")
    assert s3.list_buckets()["Buckets"] == []
