"""Find the buckets that destroyed or rolled back clusters left behind: kept on purpose, but they cost money."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from bootstrap.contract import CLUSTER_TAG
from cli.aws.stack_history import Event

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

KEPT: Final = "DELETE_SKIPPED"
"""CloudFormation's status for a resource that it leaves behind."""


def orphaned_buckets(
    tagging: Any, cloudformation: "CloudFormationClient", *, cluster_name: str, events: Sequence[Event]
) -> list[str]:
    """Return the buckets of clusters of that name that no stack uses now.

    ``events`` belong to the stack of that name: while it is being created, only they tell which bucket is its own.
    """
    tagged = set(_tagged(tagging, cluster_name))
    last = {event.physical_id: event.status for event in events}
    candidates = {bucket for bucket in tagged if last.get(bucket, KEPT) == KEPT}
    # A cluster may have adopted one: its output says so, and its parameter before there are outputs.
    return sorted(candidates - set(_values_in_stacks(cloudformation))) if candidates else []


def _tagged(tagging: Any, cluster_name: str) -> Iterator[str]:
    pages = tagging.get_paginator("get_resources").paginate(
        TagFilters=[{"Key": CLUSTER_TAG, "Values": [cluster_name]}], ResourceTypeFilters=["s3"]
    )
    yield from (found["ResourceARN"].rpartition(":")[2] for page in pages for found in page["ResourceTagMappingList"])


def _values_in_stacks(cloudformation: "CloudFormationClient") -> Iterator[str]:
    """Yield the values of every stack's outputs and parameters; a stack that was rolled back may be tried again."""
    for page in cloudformation.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            yield from (out["OutputValue"] for out in stack.get("Outputs", []))
            yield from (parameter["ParameterValue"] for parameter in stack.get("Parameters", []))


def delete_command(bucket: str, *, region: str) -> str:
    """Return a shell command that deletes a bucket with every version; ``aws s3 rb --force`` leaves the old ones."""
    code = (
        f'import boto3; b = boto3.resource("s3", region_name="{region}").Bucket("{bucket}"); '
        "b.object_versions.delete(); b.delete()"
    )
    return shlex.join([sys.executable, "-c", code])
