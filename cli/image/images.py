"""Find, create and await the image of a cluster's setup in EC2, and end the workers that images were made of."""

import sys
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from bootstrap.contract import CLUSTER_TAG, GROUP_TAG, SETUP_HASH_LENGTH, SETUP_TAG
from cli.errors import ClusterError
from cli.output import printable

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

AVAILABLE: Final = "available"
PENDING: Final = "pending"
STILL_THERE: Final = ("pending", "running", "stopping", "stopped")
IMAGE_TIMEOUT_S: Final = 3600.0
"""Seconds for an image: the first snapshot of a volume copies every block that was ever written."""
POLL_S: Final = 5.0
TELL_S: Final = 60.0
"""Seconds between two lines about a wait."""


def find_image(ec2: "EC2Client", *, cluster_name: str, sha256: str) -> str | None:
    """Return the newest image of a cluster's setup that can be used now or soon."""
    wanted: Any = {CLUSTER_TAG: cluster_name, SETUP_TAG: sha256}
    filters: Any = [{"Name": f"tag:{key}", "Values": [value]} for key, value in wanted.items()]
    images = ec2.describe_images(Owners=["self"], Filters=filters)["Images"]
    usable = [image for image in images if image["State"] in (AVAILABLE, PENDING)]
    newest = max(usable, key=lambda image: image.get("CreationDate", ""), default=None)
    return newest["ImageId"] if newest else None


def create_image(ec2: "EC2Client", instance_id: str, *, cluster_name: str, sha256: str) -> str:
    """Start an image of an instance's disk as it is now; return its ID."""
    # No two images of an account and region may have one name.
    name = f"{cluster_name}-{sha256[:SETUP_HASH_LENGTH]}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}"
    tags: Any = [{"Key": k, "Value": v} for k, v in (("Name", name), *_tags(cluster_name, sha256).items())]
    created = ec2.create_image(
        InstanceId=instance_id,
        Name=name,
        Description=f"worker of cluster {cluster_name} with setup {sha256}",
        # A reboot would make a node of it again; its disk is at rest and written out (bootstrap.setup.prepare_image).
        NoReboot=True,
        TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in ("image", "snapshot")],
    )
    return created["ImageId"]


def await_image(ec2: "EC2Client", image_id: str, *, timeout_s: float = IMAGE_TIMEOUT_S) -> None:
    """Wait until an image can be used. Raises ClusterError if it fails, or takes too long."""
    started = told = time.monotonic()
    while (image := _describe(ec2, image_id)).get("State") in (PENDING, None):
        now = time.monotonic()
        if now - started >= timeout_s:
            raise ClusterError(f"waited {timeout_s:.0f} s for image {image_id}: dlcluster bake waits again")
        if now == started or now - told >= TELL_S:
            print(f"dlcluster: waiting for image {image_id}, {now - started:.0f} s so far", file=sys.stderr)
            told = now
        time.sleep(POLL_S)
    if (state := image["State"]) != AVAILABLE:
        reason = printable(image.get("StateReason", {}).get("Message", ""))
        raise ClusterError(f"image {image_id} must become {AVAILABLE}, its state is {state}{reason and f': {reason}'}")


def mark_instance(ec2: "EC2Client", instance_id: str, *, sha256: str) -> None:
    """Tag the worker of an image, so that `end_marked` finds it once it is in no group."""
    ec2.create_tags(Resources=[instance_id], Tags=[{"Key": SETUP_TAG, "Value": sha256}])


def end_marked(ec2: "EC2Client", *, cluster_name: str) -> None:
    """End the workers of images that have left their group; one that is still in it goes on as a node."""
    filters: Any = [
        {"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster_name]},
        {"Name": "tag-key", "Values": [SETUP_TAG]},
        {"Name": "instance-state-name", "Values": [*STILL_THERE]},
    ]
    for page in ec2.get_paginator("describe_instances").paginate(Filters=filters):
        for instance in (each for reservation in page["Reservations"] for each in reservation["Instances"]):
            if GROUP_TAG not in {tag.get("Key") for tag in instance.get("Tags", [])}:
                print(f"dlcluster: ending {instance['InstanceId']}, the worker of an image", file=sys.stderr)
                ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])


def _tags(cluster_name: str, sha256: str) -> dict[str, str]:
    return {CLUSTER_TAG: cluster_name, SETUP_TAG: sha256}


def _describe(ec2: "EC2Client", image_id: str) -> Any:
    """Return EC2's description of an image; empty while EC2 does not know a new one yet."""
    found = ec2.describe_images(Filters=[{"Name": "image-id", "Values": [image_id]}])["Images"]
    return found[0] if found else {}
