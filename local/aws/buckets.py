"""Buckets of stacks as S3 has them: with versions, and deleted only when nothing is in them.

moto's CloudFormation creates a bucket without its versioning and lifecycle, and passes over one that it cannot delete.
"""

from typing import Any

from moto.s3.exceptions import BucketNotEmpty
from moto.s3.models import FakeBucket, S3Backend, s3_backends
from moto.utilities.utils import get_partition

from local.aws.patching import around

_Properties = dict[str, Any]


class _NotEmpty(BucketNotEmpty):
    """S3's words for a bucket that was ever versioned: ``aws s3 rm`` leaves it with markers and old versions."""

    def __init__(self, bucket_name: str):
        super().__init__(bucket_name)
        self.message = f"{self.message}. You must delete all versions in the bucket."


def install() -> None:
    """Give stacks' buckets what their templates say, and refuse to delete one with anything in it."""
    around(FakeBucket, "create_from_cloudformation_json", _create)
    around(FakeBucket, "update_from_cloudformation_json", _update)
    around(S3Backend, "delete_bucket", _delete)


def _create(original: Any, name: str, definition: _Properties, account: str, region: str, **named: Any) -> FakeBucket:
    bucket: FakeBucket = original(name, definition, account, region, **named)
    _configure(bucket, definition.get("Properties", {}), account, region)
    return bucket


def _update(
    original: Any,
    original_resource: FakeBucket,
    new_resource_name: str,
    cloudformation_json: _Properties,
    account_id: str,
    region_name: str,
) -> FakeBucket:
    properties = cloudformation_json["Properties"]
    # moto looks for the name of one whose tags change, and the CDK's have none.
    named = {"Properties": {"BucketName": original_resource.name} | properties}
    bucket: FakeBucket = original(
        original_resource, new_resource_name, cloudformation_json | named, account_id, region_name
    )
    _configure(bucket, properties, account_id, region_name)
    return bucket


def _configure(bucket: FakeBucket, properties: _Properties, account: str, region: str) -> None:
    backend = s3_backends[account][get_partition(region)]
    if status := properties.get("VersioningConfiguration", {}).get("Status"):
        backend.put_bucket_versioning(bucket.name, status)
    if rules := properties.get("LifecycleConfiguration", {}).get("Rules"):
        backend.put_bucket_lifecycle_configuration(bucket.name, [_rule(rule) for rule in rules])


def _rule(rule: _Properties) -> _Properties:
    """A lifecycle rule as S3's own API words it: a template has other names for two of its parts."""
    days = rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays")
    parts: _Properties = {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "Id" in rule:
        parts["ID"] = rule["Id"]
    if days is not None:
        parts["NoncurrentVersionExpiration"] = {"NoncurrentDays": days}
    if rule.get("ExpiredObjectDeleteMarker"):
        parts["Expiration"] = {"ExpiredObjectDeleteMarker": "true"}
    if abort := rule.get("AbortIncompleteMultipartUpload"):
        parts["AbortIncompleteMultipartUpload"] = abort
    return parts


def _delete(original: Any, backend: S3Backend, bucket_name: str) -> FakeBucket:
    """Old versions and delete markers count, and CloudFormation hears of it as others do."""
    bucket = backend.get_bucket(bucket_name)
    if bucket.keys:
        raise _NotEmpty(bucket_name) if bucket.versioning_status else BucketNotEmpty(bucket_name)
    removed: FakeBucket = original(backend, bucket_name)
    return removed
