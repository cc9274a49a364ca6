"""Give stacks' buckets versioning, lifecycle rules and policies, and refuse to delete one that is not empty.

moto's CloudFormation ignores a bucket's versioning and lifecycle, and skips a bucket that it cannot delete. Its tagging
API lists the buckets of all regions; AWS's lists those of its own ("GetResources", Resource Groups Tagging API).
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from moto.core.resource_tagging import TaggedResource
from moto.resourcegroupstaggingapi.models import ResourceGroupsTaggingAPIBackend
from moto.s3.exceptions import BucketNotEmpty
from moto.s3.models import FakeBucket, S3Backend, s3_backends
from moto.utilities.utils import get_partition

from local.control_plane.moto_patching import wrap
from local.policy_evaluation.policies import Statement, parse

_Properties = dict[str, Any]

BUCKET_POLICIES: dict[str, str] = {}
"""Policies that templates gave buckets: JSON by bucket.

moto never sees them, because it would apply them without their conditions.
"""


class _NotEmpty(BucketNotEmpty):
    """S3's error for a bucket that was ever versioned: ``aws s3 rm`` leaves markers and old versions in it."""

    def __init__(self, bucket_name: str):
        super().__init__(bucket_name)
        self.message = f"{self.message}. You must delete all versions in the bucket."


def install() -> None:
    """Patch moto: configure buckets according to their templates, and refuse to delete one that is not empty."""
    wrap(FakeBucket, "create_from_cloudformation_json", _create)
    wrap(FakeBucket, "update_from_cloudformation_json", _update)
    wrap(S3Backend, "delete_bucket", _delete)
    wrap(ResourceGroupsTaggingAPIBackend, "_get_resources_generator", _get_regional_resources)


def _get_regional_resources(
    original: Any, backend: ResourceGroupsTaggingAPIBackend, **kwargs: Any
) -> Iterator[TaggedResource]:
    buckets = s3_backends[backend.account_id][backend.partition].buckets.values()
    other_regions = {bucket.arn for bucket in buckets if bucket.region_name != backend.region_name}
    return (resource for resource in original(backend, **kwargs) if resource.arn not in other_regions)


def _create(original: Any, name: str, definition: _Properties, account: str, region: str, **kwargs: Any) -> FakeBucket:
    bucket: FakeBucket = original(name, definition, account, region, **kwargs)
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
    # moto needs the name of a bucket whose tags change, but the CDK's templates have none.
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
    """Translate a lifecycle rule from a template's terms to those of S3's API."""
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
    """Refuse to delete a bucket with old versions or delete markers, and inform CloudFormation."""
    bucket = backend.get_bucket(bucket_name)
    if bucket.keys:
        raise _NotEmpty(bucket_name) if bucket.versioning_status else BucketNotEmpty(bucket_name)
    removed: FakeBucket = original(backend, bucket_name)
    return removed


def bucket_policy(resource: str) -> tuple[Statement, ...]:
    """Return the policy of the bucket that an ARN denotes or that contains its object. Raises PolicyError."""
    if ":s3:::" not in resource:
        return ()
    bucket = resource.split(":::")[1].partition("/")[0]
    return _parsed(BUCKET_POLICIES[bucket]) if bucket in BUCKET_POLICIES else ()


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[Statement, ...]:
    return parse(json.loads(text), of_resource=True)
