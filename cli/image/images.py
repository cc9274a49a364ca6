"""Find, create and await the image of a cluster's setup in EC2."""

import math
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from bootstrap.contract import CLUSTER_TAG, SETUP_HASH_LENGTH, SETUP_TAG
from cli.aws.nodes import tag_values
from cli.errors import ClusterError
from cli.output import printable
from cli.shared_options import invocation

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef, InstanceTypeDef

BASE_IMAGE_TAG: Final = "deeplearning:base-image"
"""Tag of an image with the image that its worker was launched from."""
WORKER_TAG: Final = "deeplearning:worker"
"""Tag of an image with the instance that it is made of."""
AVAILABLE: Final = "available"
PENDING: Final = "pending"
IMAGE_TIMEOUT_S: Final = 3600.0
"""Seconds for an image: the first snapshot of a volume copies every block that was ever written."""
POLL_S: Final = 5.0
REPORT_S: Final = 60.0
"""Seconds between progress lines."""


def find_image(ec2: "EC2Client", node: "InstanceTypeDef", *, cluster_name: str, sha256: str) -> str | None:
    """Return the newest image of a cluster's setup on a node's base image that can be used now or soon."""
    usable = [
        image
        for image in _images(ec2, {CLUSTER_TAG: cluster_name, SETUP_TAG: sha256})
        if image["State"] in (AVAILABLE, PENDING)
        and image.get("Architecture") == node["Architecture"]
        # A node of the image itself was deployed with it.
        and node["ImageId"] in (image["ImageId"], *tag_values(image, BASE_IMAGE_TAG))
    ]
    newest = max(usable, key=lambda image: image.get("CreationDate", ""), default=None)
    return newest["ImageId"] if newest else None


def pending_images(ec2: "EC2Client", *, cluster_name: str) -> dict[str, str]:
    """Return the unfinished images of a cluster, by the instance that each is made of."""
    images = _images(ec2, {CLUSTER_TAG: cluster_name})
    return {
        name: image["ImageId"]
        for image in images
        if image["State"] == PENDING
        for name in tag_values(image, WORKER_TAG)
    }


def _images(ec2: "EC2Client", tags: dict[str, str]) -> "list[ImageTypeDef]":
    filters: Any = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
    return ec2.describe_images(Owners=["self"], Filters=filters)["Images"]


def require_permissions(ec2: "EC2Client", node: "InstanceTypeDef", *, cluster_name: str, sha256: str) -> None:
    """Raise ClientError unless the caller may make an image of a node and terminate the node."""
    for dry_run in (
        lambda: ec2.create_image(**_request(node, cluster_name=cluster_name, sha256=sha256), DryRun=True),
        lambda: ec2.terminate_instances(InstanceIds=[node["InstanceId"]], DryRun=True),
    ):
        try:
            dry_run()
        except ClientError as error:
            if error.response["Error"]["Code"] != "DryRunOperation":
                raise


def create_image(ec2: "EC2Client", node: "InstanceTypeDef", *, cluster_name: str, sha256: str) -> str:
    """Start an image of a node's root disk as it is now; return its ID."""
    return ec2.create_image(**_request(node, cluster_name=cluster_name, sha256=sha256))["ImageId"]


def _request(node: "InstanceTypeDef", *, cluster_name: str, sha256: str) -> Any:
    """Return the arguments of CreateImage."""
    # No two images of an account and region may have one name.
    name = f"{cluster_name}-{sha256[:SETUP_HASH_LENGTH]}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}"
    known = {"Name": name, CLUSTER_TAG: cluster_name, SETUP_TAG: sha256}
    known |= {BASE_IMAGE_TAG: node["ImageId"], WORKER_TAG: node["InstanceId"]}
    tags = [{"Key": key, "Value": value} for key, value in known.items()]
    others = [m["DeviceName"] for m in node["BlockDeviceMappings"] if m["DeviceName"] != node["RootDeviceName"]]
    return {
        "InstanceId": node["InstanceId"],
        "Name": name,
        "Description": f"worker of cluster {cluster_name} with setup {sha256}",
        # A reboot would make a node of it again; its disk is at rest and written out (bootstrap.setup.prepare_image).
        "NoReboot": True,
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("image", "snapshot")],
        # EC2 would copy every attached volume, and only the root disk is cleaned.
        **({"BlockDeviceMappings": [{"DeviceName": device, "NoDevice": ""} for device in others]} if others else {}),
    }


def wait_for_image(
    ec2: "EC2Client", image_id: str, *, keep_alive: Callable[[], None], timeout_s: float = IMAGE_TIMEOUT_S
) -> None:
    """Wait until an image can be used, and call `keep_alive` every REPORT_S.

    Raises ClusterError if the image fails, or at the timeout.
    """
    started, reported_at = time.monotonic(), -math.inf
    while (image := _describe(ec2, image_id)).get("State") in (PENDING, None):
        now = time.monotonic()
        if now - started >= timeout_s:
            raise ClusterError(f"waited {timeout_s:.0f} s for image {image_id}: {invocation()} bake waits again")
        if now - reported_at >= REPORT_S:
            print(f"dlcluster: waiting for image {image_id}, {now - started:.0f} s so far", file=sys.stderr)
            reported_at = now
            keep_alive()
        time.sleep(POLL_S)
    if (state := image["State"]) != AVAILABLE:
        reason = printable(image.get("StateReason", {}).get("Message", ""))
        raise ClusterError(f"image {image_id} must become {AVAILABLE}, its state is {state}{reason and f': {reason}'}")


def _describe(ec2: "EC2Client", image_id: str) -> Any:
    """Return EC2's description of an image; empty while EC2 does not know a new one yet."""
    images = ec2.describe_images(Filters=[{"Name": "image-id", "Values": [image_id]}])["Images"]
    return images[0] if images else {}
