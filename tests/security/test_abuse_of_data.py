"""Abuse each role's access to the user's own buckets and their key: it reaches what the settings name, and no more."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.local.control_plane.harness import REGION
from tests.security.cluster import BOTH, Node, RoleCluster, abuses, refused
from tests.security.user_resources import DATA, DATA_KEY, RESULTS

KEY = f"kms:{DATA_KEY.rpartition(':')[2]}, kms:ViaService s3.{REGION}.amazonaws.com"
OURS, THEIRS = "ours/model", "theirs/model"


def encrypt(cluster: RoleCluster, bucket: str, key: str) -> None:
    """Have a bucket encrypt its objects with a key."""
    rule: Any = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}}
    cluster.aws.client("s3").put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})


@pytest.fixture(scope="module", autouse=True)
def _stored(cluster: RoleCluster) -> None:
    """Store objects in and beside what the settings name."""
    s3 = cluster.aws.client("s3")
    for bucket, keys in ((DATA, ("vision/a", "vision-2/a", "a")), (RESULTS, (OURS, THEIRS)), ("team-other", ("a",))):
        s3.create_bucket(Bucket=bucket)
        for key in keys:
            s3.put_object(Bucket=bucket, Key=key, Body=b"stored")
    for bucket in (DATA, RESULTS):
        encrypt(cluster, bucket, DATA_KEY)


@abuses(
    BOTH,
    *(f"s3:ListBucket on s3:::{DATA}, s3:prefix vision{rest}" for rest in ("", "/*")),
    f"s3:GetObject on s3:::{DATA}/vision/*",
)
def test_node_reads_below_the_named_prefix_and_writes_nothing_there(node: Node) -> None:
    s3 = node.client("s3")
    for bucket, key in ((DATA, "a"), (DATA, "vision-2/a"), ("team-other", "a")):
        refused(s3.get_object, Bucket=bucket, Key=key)
    for bucket, prefix in ((DATA, ""), (DATA, "vision-2/"), ("team-other", "vision/")):
        refused(s3.list_objects_v2, Bucket=bucket, Prefix=prefix)
    refused(s3.put_object, Bucket=DATA, Key="vision/b", Body=b"mine")
    refused(s3.delete_object, Bucket=DATA, Key="vision/a")
    refused(s3.get_object, Bucket=DATA, Key="vision/a", VersionId="1")
    refused(s3.get_bucket_policy, Bucket=DATA)
    for prefix in ("vision", "vision/"):
        objects = s3.list_objects_v2(Bucket=DATA, Prefix=prefix)["Contents"]
        assert "vision/a" in [item["Key"] for item in objects]
    assert s3.get_object(Bucket=DATA, Key="vision/a")["Body"].read() == b"stored"


@abuses(
    BOTH,
    *(f"s3:ListBucket on s3:::{RESULTS}, s3:prefix ours{rest}" for rest in ("", "/*")),
    *(
        f"s3:{action} on s3:::{RESULTS}/ours/*"
        for action in ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload")
    ),
)
def test_node_writes_below_the_named_prefix_alone_and_destroys_no_version(node: Node) -> None:
    s3 = node.client("s3")
    refused(s3.get_object, Bucket=RESULTS, Key=THEIRS)
    refused(s3.put_object, Bucket=RESULTS, Key=THEIRS, Body=b"mine")
    refused(s3.delete_object, Bucket=RESULTS, Key=THEIRS)
    refused(s3.list_objects_v2, Bucket=RESULTS)
    refused(s3.delete_object, Bucket=RESULTS, Key=OURS, VersionId="1")
    refused(s3.put_object_acl, Bucket=RESULTS, Key=OURS, ACL="public-read")
    refused(s3.put_bucket_policy, Bucket=RESULTS, Policy="{}")
    for prefix in ("ours", "ours/"):
        assert s3.list_objects_v2(Bucket=RESULTS, Prefix=prefix)["KeyCount"]
    s3.put_object(Bucket=RESULTS, Key=OURS, Body=b"mine")
    assert s3.get_object(Bucket=RESULTS, Key=OURS)["Body"].read() == b"mine"
    upload = s3.create_multipart_upload(Bucket=RESULTS, Key="ours/large")["UploadId"]
    s3.abort_multipart_upload(Bucket=RESULTS, Key="ours/large", UploadId=upload)
    s3.delete_object(Bucket=RESULTS, Key=OURS)
    node.cluster.aws.client("s3").put_object(Bucket=RESULTS, Key=OURS, Body=b"stored")


@pytest.fixture
def foreign_key(cluster: RoleCluster) -> Iterator[None]:
    """Have the buckets encrypt with a key that data_keys does not name."""
    for bucket in (DATA, RESULTS):
        encrypt(cluster, bucket, f"{DATA_KEY}9")
    yield
    for bucket in (DATA, RESULTS):
        encrypt(cluster, bucket, DATA_KEY)


@pytest.mark.usefixtures("foreign_key")
def test_node_reads_nothing_under_a_key_that_is_not_named(node: Node) -> None:
    s3 = node.client("s3")
    refused(s3.get_object, Bucket=DATA, Key="vision/a")
    refused(s3.put_object, Bucket=RESULTS, Key=OURS, Body=b"mine")


@abuses(BOTH, *(f"kms:{action} on {KEY}" for action in ("Decrypt", "GenerateDataKey")))
def test_node_uses_the_key_of_the_data_through_s3_alone(node: Node) -> None:
    s3, kms = node.client("s3"), node.client("kms")
    refused(kms.decrypt, CiphertextBlob=b"x", KeyId=DATA_KEY)
    refused(kms.generate_data_key, KeyId=DATA_KEY, KeySpec="AES_256")
    refused(kms.encrypt, Plaintext=b"x", KeyId=DATA_KEY)
    refused(kms.schedule_key_deletion, KeyId=DATA_KEY)
    s3.put_object(Bucket=RESULTS, Key=OURS, Body=b"mine")
    assert s3.get_object(Bucket=RESULTS, Key=OURS)["Body"].read() == b"mine"
