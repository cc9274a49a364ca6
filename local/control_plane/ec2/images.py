"""Register machine images: the latest of each family that a cluster may ask for, and those that users make of nodes.

moto's CreateImage refuses tags of snapshots, forgets the root volume's size, and makes the image available at once.
Here the data plane copies the node's disk, and until then the image is pending.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.models.instances import Instance
from moto.ec2.responses.amis import AmisResponse
from moto.ec2.utils import random_ami_id
from moto.ssm.models import Parameter, ssm_backends

from local.control_plane.moto_patching import wrap
from local.node.disks import is_complete, request_image
from local.node.reboots import request_reboot
from local.run_dir import RUN_DIR_VARIABLE


@dataclass(frozen=True, kw_only=True, slots=True)
class _Release:
    """A family's latest image as AWS describes it."""

    name: str
    gib: int = 30
    created: datetime = datetime(2026, 11, 1, tzinfo=timezone.utc)


_RELEASES = {
    "base-oss-nvidia-driver-gpu-ubuntu-22.04": _Release(
        name="Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261101", gib=75
    ),
    "base-oss-nvidia-driver-gpu-ubuntu-24.04": _Release(
        name="Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261101", gib=75
    ),
    # AWS no longer patches this one, but its parameter still exists.
    "oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04": _Release(
        name="Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.7 (Ubuntu 22.04) 20260502",
        created=datetime(2026, 5, 2, tzinfo=timezone.utc),
    ),
    "oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04": _Release(
        name="Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.12 (Ubuntu 24.04) 20261101"
    ),
}
FAMILIES = tuple(_RELEASES)
_DEPRECATED_AFTER = timedelta(days=2 * 365)
"""Age of a public image's deprecation; EC2 allows at most two years."""
_AMAZON = "898082745236"
"""Account that owns the Deep Learning AMIs."""


class _Image(Ami):
    """moto's image with its own size and a deprecation date."""

    gib: int
    deprecation_time: str | None = None

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        """Return the root volume, which moto always makes 15 GiB large."""
        [root] = super().block_device_mappings
        return [{**root, "Ebs": {**root["Ebs"], "VolumeSize": self.gib, "VolumeType": "gp3"}}]


def install() -> None:
    """Patch moto: make images of nodes."""
    wrap(AmiBackend, "create_image", _create_image)
    wrap(AmiBackend, "describe_images", _describe_images)
    wrap(AmisResponse, "create_image", _reboot_unless_told)


def image_id(family: str) -> str:
    """Return the ID of a family's latest image; it is the same in every run."""
    return f"ami-0{hashlib.sha256(family.encode()).hexdigest()[:16]}"


def parameter_name(family: str) -> str:
    """Return the public SSM parameter that contains the ID of a family's latest image."""
    return f"/aws/service/deeplearning/ami/x86_64/{family}/latest/ami-id"


def register(region: str) -> None:
    """Register the images and their parameters in a region."""
    backend = ec2_backends[DEFAULT_ACCOUNT_ID][region]
    # moto rightly refuses PutParameter below /aws/
    parameters = ssm_backends[DEFAULT_ACCOUNT_ID][region]._parameters
    # moto's class lacks two abstract methods of its base, which only type checkers notice
    make_parameter: Any = Parameter
    for family, release in _RELEASES.items():
        image = _Image(
            backend,
            image_id(family),
            name=release.name,
            owner_id=_AMAZON,
            owner_alias="amazon",
            public=True,
            architecture="x86_64",
            virtualization_type="hvm",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name="/dev/sda1",
            creation_date=release.created,
            region_name=f"{region}a",
        )
        image.gib = release.gib
        image.deprecation_time = (release.created + _DEPRECATED_AFTER).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        backend.amis[image.id] = image
        parameters[parameter_name(family)].append(
            make_parameter(
                account_id=DEFAULT_ACCOUNT_ID,
                name=parameter_name(family),
                value=image.id,
                parameter_type="String",
                description=None,
                allowed_pattern=None,
                keyid=None,
                last_modified_date=release.created,
                version=1,
                data_type="aws:ec2:image",
            )
        )


def _create_image(
    _original: Any,
    backend: EC2Backend,
    instance_id: str,
    name: str,
    description: str,
    tag_specifications: Sequence[Mapping[str, Any]],
) -> Ami:
    instance = backend.get_instance(instance_id)
    if instance._state.name not in ("running", "stopped"):
        state = f"The instance '{instance_id}' is not in the 'running' or 'stopped' state."
        raise EC2ClientError("IncorrectState", state)
    used = next((image.id for image in backend.amis.values() if image.name == name), None)
    if used:
        taken = f"AMI name {name} is already in use by AMI {used}"
        raise EC2ClientError("InvalidAMIName.Duplicate", taken)
    image = _Image(
        backend,
        random_ami_id(),
        instance=instance,
        name=name,
        description=description,
        hypervisor="xen",
        root_device_type="ebs",
        root_device_name="/dev/sda1",
        region_name=instance._placement.zone or f"{backend.region_name}a",
        snapshot_description=f"Created by CreateImage({instance_id})",
    )
    image.gib = _root_gib(backend, instance)
    resources = {"image": image, "snapshot": image.ebs_snapshot}
    for specification in tag_specifications:
        for tag in specification["Tags"]:
            resources[specification["ResourceType"]].add_tag(tag["Key"], tag["Value"])
    # Nodes exist only inside a local AWS.
    if run_dir := os.environ.get(RUN_DIR_VARIABLE):
        image.state = "pending"
        request_image(Path(run_dir), image.id, instance_id=instance_id, base=instance.image_id)
    backend.amis[image.id] = image
    return image


def _root_gib(backend: EC2Backend, instance: Instance) -> int:
    root = instance.block_device_mapping.get("/dev/sda1")
    return int(backend.volumes[root.volume_id].size) if root else 8


def _describe_images(original: Any, backend: EC2Backend, *args: Any, **kwargs: Any) -> Any:
    for image in backend.amis.values():
        if image.state == "pending" and is_complete(Path(os.environ[RUN_DIR_VARIABLE]), image.id):
            image.state = "available"
    return original(backend, *args, **kwargs)


def _reboot_unless_told(original: Any, response: AmisResponse) -> ActionResult:
    """Reboot the instance, as EC2 does so that its disk is at rest, unless NoReboot is set."""
    created: ActionResult = original(response)
    if (run_dir := os.environ.get(RUN_DIR_VARIABLE)) and not response._get_bool_param("NoReboot", False):
        request_reboot(Path(run_dir), response._get_param("InstanceId"))
    return created
