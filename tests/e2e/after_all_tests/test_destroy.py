"""Test that destroying a cluster removes everything it should; runs after all tests that use the cluster."""

import boto3

from tests.e2e.support.deployed_cluster import DeployedCluster, stack_outputs
from tests.e2e.support.leftovers import leftovers, resources_by_kind, stack_buckets


def log_groups() -> list[str]:
    return [group["logGroupName"] for group in boto3.client("logs").describe_log_groups()["logGroups"]]


def test_destroy_leaves_nothing_but_the_log_group_and_the_bucket(cluster: DeployedCluster) -> None:
    assert all(resources_by_kind().values())
    outputs = stack_outputs()
    bucket, kept = outputs["ClusterBucket"], outputs.get("SharedStorage")
    cluster.user.cdk("destroy", "--force")
    assert leftovers() == {}
    assert len(log_groups()) == 1
    assert stack_buckets() == [bucket]
    delete_kept_storage(cluster, kept)


def delete_kept_storage(cluster: DeployedCluster, kept: str | None) -> None:
    """Check that the shared file system is kept without its mount targets until the user deletes it."""
    efs = boto3.client("efs")
    systems = {
        system["FileSystemId"]: system["NumberOfMountTargets"] for system in efs.describe_file_systems()["FileSystems"]
    }
    assert systems == ({} if kept is None else {kept: 0})
    if kept is not None:
        assert kept in cluster.user.output("dlcluster", "delete-storage")
        cluster.user.run("dlcluster", "delete-storage", kept, "--yes")
        assert efs.describe_file_systems()["FileSystems"] == []
