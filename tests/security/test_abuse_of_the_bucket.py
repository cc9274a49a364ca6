"""Test what an attacker on a node can do to other nodes' checkpoints."""

import json
from collections.abc import Iterator
from itertools import product

import pytest

from tests.security.cluster import BOTH, Node, abuses, refused
from tests.security.user_resources import TOOLKIT_BUCKET


@abuses(BOTH, "s3:ListBucket on s3:::BUCKET")
def test_node_lists_the_clusters_bucket_and_changes_nothing_of_it(node: Node) -> None:
    s3, bucket = node.client("s3"), node.cluster.names["BUCKET"]
    refused(s3.list_objects_v2, Bucket=TOOLKIT_BUCKET)
    refused(s3.list_buckets)
    refused(s3.list_object_versions, Bucket=bucket)
    refused(s3.put_bucket_versioning, Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    refused(s3.delete_bucket_policy, Bucket=bucket)
    refused(s3.delete_bucket, Bucket=bucket)
    assert s3.list_objects_v2(Bucket=bucket)["Contents"]


@abuses(BOTH, *(f"s3:{action} on s3:::BUCKET/*" for action in ("GetObject", "PutObject", "DeleteObject")))
def test_node_replaces_and_deletes_checkpoints_of_others_and_no_version_of_them(node: Node) -> None:
    s3, bucket, key = node.client("s3"), node.cluster.names["BUCKET"], "others/checkpoint"
    refused(s3.delete_object, Bucket=bucket, Key=key, VersionId="1")
    refused(s3.get_object, Bucket=bucket, Key=key, VersionId="1")
    refused(s3.put_object_acl, Bucket=bucket, Key=key, ACL="public-read")
    refused(s3.put_object, Bucket=TOOLKIT_BUCKET, Key=key, Body=b"mine")
    s3.put_object(Bucket=bucket, Key=key, Body=b"mine")
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"mine"
    s3.delete_object(Bucket=bucket, Key=key)
    node.cluster.aws.client("s3").put_object(Bucket=bucket, Key=key, Body=b"theirs")


def test_worker_cannot_replace_what_later_nodes_run_as_root(worker: Node) -> None:
    s3, bucket = worker.client("s3"), worker.cluster.names["BUCKET"]
    refused(s3.put_object, Bucket=bucket, Key="mxnet/x.tar.gz", Body=b"")
    refused(s3.delete_object, Bucket=bucket, Key="mxnet/x.tar.gz")


def test_worker_can_neither_read_nor_write_what_the_next_master_runs(worker: Node, master: Node) -> None:
    bucket, key = worker.cluster.names["BUCKET"], "jobs/deeplearning/durable/x.json"
    master.client("s3").put_object(Bucket=bucket, Key=key, Body=b"mine")
    s3 = worker.client("s3")
    refused(s3.put_object, Bucket=bucket, Key=key, Body=b"theirs")
    refused(s3.get_object, Bucket=bucket, Key=key)
    refused(s3.delete_object, Bucket=bucket, Key=key)
    assert master.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read() == b"mine"


@pytest.fixture
def with_all_of_s3(master: Node, worker: Node) -> Iterator[None]:
    """Give both roles what AmazonS3FullAccess in policy_arns gives them."""
    iam = worker.cluster.aws.client("iam")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    for node in (master, worker):
        iam.put_role_policy(RoleName=node.role["RoleName"], PolicyName="all", PolicyDocument=json.dumps(policy))
    yield
    for node in (master, worker):
        iam.delete_role_policy(RoleName=node.role["RoleName"], PolicyName="all")


@pytest.mark.usefixtures("with_all_of_s3")
def test_full_s3_access_cannot_read_or_delete_versions_that_others_run(worker: Node, master: Node) -> None:
    bucket, s3, owner = worker.cluster.names["BUCKET"], worker.client("s3"), master.client("s3")
    for key in ("jobs/deeplearning/durable/ended.json", "mxnet/ended.tar.gz"):
        version = owner.put_object(Bucket=bucket, Key=key, Body=b"mine")["VersionId"]
        marker = owner.delete_object(Bucket=bucket, Key=key)["VersionId"]
        refused(s3.delete_object, Bucket=bucket, Key=key, VersionId=marker)
        refused(s3.delete_object, Bucket=bucket, Key=key, VersionId=version)
        refused(s3.put_object_tagging, Bucket=bucket, Key=key, Tagging={"TagSet": []})
        if key.startswith("jobs/"):
            refused(s3.get_object, Bucket=bucket, Key=key, VersionId=version)
    for node, key in product((master, worker), (worker.cluster.bundle, worker.cluster.setup)):
        refused(node.client("s3").delete_object, Bucket=TOOLKIT_BUCKET, Key=key, VersionId="1")
        refused(node.client("s3").put_object, Bucket=TOOLKIT_BUCKET, Key=key, Body=b"mine")


@pytest.mark.usefixtures("with_all_of_s3")
def test_full_s3_access_cannot_stop_versioning(worker: Node, master: Node) -> None:
    bucket = worker.cluster.names["BUCKET"]
    for node in (master, worker):
        s3 = node.client("s3")
        refused(s3.put_bucket_versioning, Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
        refused(s3.put_bucket_policy, Bucket=bucket, Policy="{}")
        refused(s3.delete_bucket_policy, Bucket=bucket)
        refused(s3.delete_bucket_lifecycle, Bucket=bucket)
