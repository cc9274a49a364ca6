"""Find the buckets that destroyed or rolled-back clusters left behind: kept on purpose, but they cost money."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from bootstrap.contract import CLUSTER_TAG
from cli.aws.stack_history import Event
from cli.errors import ClusterError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

KEPT: Final = "DELETE_SKIPPED"
"""CloudFormation's status for a resource that it has left behind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """A bucket that a cluster created."""

    name: str
    cluster: str
    """Name of the cluster that created it."""


def orphaned_buckets(
    tagging: Any, cloudformation: "CloudFormationClient", *, cluster_name: str, events: Sequence[Event]
) -> list[str]:
    """Return the buckets of clusters of that name that no stack currently uses.

    ``events`` belong to the stack of that name: while it is being created, only they show which bucket is its own.
    """
    tagged = {bucket.name for bucket in made_buckets(tagging) if bucket.cluster == cluster_name}
    last = {event.physical_id: event.status for event in events}
    candidates = {bucket for bucket in tagged if last.get(bucket, KEPT) == KEPT}
    # A cluster may have adopted one: its output names it, or, before there are outputs, its parameter.
    return sorted(candidates - set(used_by_stacks(cloudformation))) if candidates else []


def made_buckets(tagging: Any) -> list[Bucket]:
    """Return every bucket of the region with a cluster's tag."""
    pages = tagging.get_paginator("get_resources").paginate(
        TagFilters=[{"Key": CLUSTER_TAG}], ResourceTypeFilters=["s3"]
    )
    return [_bucket(found) for page in pages for found in page["ResourceTagMappingList"]]


def _bucket(found: Any) -> Bucket:
    [cluster] = [tag["Value"] for tag in found["Tags"] if tag["Key"] == CLUSTER_TAG]
    return Bucket(name=found["ResourceARN"].rpartition(":")[2], cluster=cluster)


def used_by_stacks(cloudformation: "CloudFormationClient") -> dict[str, str]:
    """Return, by bucket, the stack of the region that has or names it, including every value of outputs and parameters.

    A rolled-back stack counts, because its deploy may be retried.
    """
    used: dict[str, str] = {}
    for page in cloudformation.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            values = [out["OutputValue"] for out in stack.get("Outputs", [])]
            values += [parameter["ParameterValue"] for parameter in stack.get("Parameters", [])]
            # A cluster in a user's own stack needs neither outputs nor parameters.
            values += _own_buckets(cloudformation, stack["StackName"])
            used |= dict.fromkeys(values, stack["StackName"])
    return used


def _own_buckets(cloudformation: "CloudFormationClient", stack_name: str) -> list[str]:
    """Return the buckets among a stack's resources, except those that it left behind."""
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack_name)
    try:
        return [
            resource["PhysicalResourceId"]
            for page in pages
            for resource in page["StackResourceSummaries"]
            if resource["ResourceType"] == "AWS::S3::Bucket"
            and resource["ResourceStatus"] not in (KEPT, "DELETE_COMPLETE")
            and resource.get("PhysicalResourceId")
        ]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return []  # deleted in the meantime


def delete_versions(s3: Any, bucket: str) -> Iterator[int]:
    """Delete every version and delete marker of a bucket; yield the number that each request has deleted.

    ``aws s3 rb --force`` leaves old versions and thus the bucket. Raises ClusterError if S3 refuses a deletion.
    """
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        versions = [version for kind in ("Versions", "DeleteMarkers") for version in page.get(kind, [])]
        if versions:
            objects = [{"Key": version["Key"], "VersionId": version["VersionId"]} for version in versions]
            refused = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True}).get("Errors", [])
            if refused:
                why = f"{refused[0].get('Code')}: {refused[0].get('Message')}"
                raise ClusterError(f"S3 refused to delete {refused[0].get('Key')!r} in {bucket}: {why}")
            yield len(objects)


def delete_command(bucket: str, *, region: str) -> str:
    """Return the command that deletes a bucket with every version."""
    return f"dlcluster delete-bucket {bucket} --region {region}"
