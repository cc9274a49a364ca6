"""Check that the buckets in data_buckets exist and who owns them; print what another account must allow."""

import json
from collections.abc import Iterator
from typing import Final

from botocore.exceptions import ClientError

from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.target import PreflightTarget
from stacks.settings.storage import READS, WRITES, DataBucket

SUBJECT: Final = "data buckets"
_DENIED: Final = "403"
_ABSENT: Final = "404"


def check_data_buckets(target: PreflightTarget) -> Iterator[Finding]:
    """Check each bucket; without any, report nothing."""
    for bucket in target.props.buckets:
        yield _check(target, bucket)


def _check(target: PreflightTarget, bucket: DataBucket) -> Finding:
    code, region = _head(target, bucket.name, owner=target.account)
    if code == "":
        if region != target.region:
            why = f"{bucket} is in {region}, from where traffic costs money"
            return warning(SUBJECT, why, f"copy what jobs read to a bucket in {target.region}")
        return ok(SUBJECT, f"{bucket} is in this account")
    if code == _ABSENT:
        return problem(SUBJECT, f"there is no bucket {bucket.name}", "choose another, or make it")
    # S3's refusal is the same for a bucket of another account and one that this user may not list.
    visible = _head(target, bucket.name, owner=None)[0] == ""
    whose = "belongs to another account" if visible else "belongs to another account, or you may not list it"
    return warning(SUBJECT, f"{bucket} {whose}", _policy_to_add(target, bucket))


def _head(target: PreflightTarget, name: str, *, owner: str | None) -> tuple[str, str]:
    """Return S3's error code, empty if you may list the bucket, and the region; HEAD answers with the HTTP status."""
    expected = {} if owner is None else {"ExpectedBucketOwner": owner}
    try:
        head = target.clients.s3.head_bucket(Bucket=name, **expected)
    except ClientError as error:
        code = str(error.response["Error"]["Code"])
        if code not in (_DENIED, _ABSENT):
            raise
        return code, ""
    return "", str(head.get("BucketRegion", target.region))


def _policy_to_add(target: PreflightTarget, bucket: DataBucket) -> str:
    """Return the statements for the bucket's policy with which its account delegates the decision to this one."""
    arn, account = f"arn:{target.partition}:s3:::", f"arn:{target.partition}:iam::{target.account}:root"
    listing = {"Effect": "Allow", "Principal": {"AWS": account}, "Action": "s3:ListBucket"}
    objects = {"Effect": "Allow", "Principal": {"AWS": account}}
    actions = [*READS, *(WRITES if bucket.is_writable else ())]
    below = {"Condition": {"StringLike": {"s3:prefix": [bucket.prefix, f"{bucket.prefix}/*"]}}} if bucket.prefix else {}
    statements = [
        {**listing, "Resource": f"{arn}{bucket.name}", **below},
        {**objects, "Action": actions, "Resource": f"{arn}{bucket.objects}"},
    ]
    return f"its owner adds to the bucket's policy: {json.dumps(statements)}"
