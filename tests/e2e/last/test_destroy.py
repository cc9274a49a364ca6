"""Destroying a cluster removes everything it should; runs after all tests that use the cluster."""

import boto3

from tests.e2e.conftest import Cluster, stack_outputs
from tests.e2e.leftovers import left_over, stack_buckets


def log_groups() -> list[str]:
    return [group["logGroupName"] for group in boto3.client("logs").describe_log_groups()["logGroups"]]


def test_destroy_leaves_nothing_but_the_log_group_and_the_bucket(cluster: Cluster) -> None:
    assert all(left_over().values())
    bucket = stack_outputs()["ClusterBucket"]
    cluster.user.cdk("destroy", "--force")
    assert {kind: found for kind, found in left_over().items() if found} == {}
    assert len(log_groups()) == 1
    assert stack_buckets() == [bucket]
