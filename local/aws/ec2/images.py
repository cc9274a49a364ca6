"""Register machine images: the latest of each family that a cluster may request."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends


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
    deprecation_time: str

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        """Return the root volume, which moto always makes 15 GiB large."""
        [root] = super().block_device_mappings
        return [{**root, "Ebs": {**root["Ebs"], "VolumeSize": self.gib, "VolumeType": "gp3"}}]


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
