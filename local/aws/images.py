"""The machine images: one, under every name by which a cluster may ask for it."""

import hashlib
from datetime import datetime, timezone
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends

FAMILIES = (
    "base-oss-nvidia-driver-gpu-ubuntu-22.04",
    "base-oss-nvidia-driver-gpu-ubuntu-24.04",
    "base-proprietary-nvidia-driver-gpu-ubuntu-22.04",
    "oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04",
    "oss-nvidia-driver-gpu-pytorch-2.8-ubuntu-24.04",
)
_AMAZON = "898082745236"
"""The account that owns the Deep Learning AMIs."""
_CREATED = datetime(2026, 11, 1, tzinfo=timezone.utc)


def image_id(family: str) -> str:
    """Id of a family's latest image; the same in every run."""
    return f"ami-0{hashlib.sha256(family.encode()).hexdigest()[:16]}"


def parameter_name(family: str) -> str:
    """Public SSM parameter that holds the id of a family's latest image."""
    return f"/aws/service/deeplearning/ami/x86_64/{family}/latest/ami-id"


def register(region: str) -> None:
    """Make the images and their parameters known in a region."""
    backend = ec2_backends[DEFAULT_ACCOUNT_ID][region]
    # moto refuses PutParameter below /aws/, rightly so
    parameters = ssm_backends[DEFAULT_ACCOUNT_ID][region]._parameters
    # moto's class leaves out two abstract methods of its base, which matters to type checkers only
    make_parameter: Any = Parameter
    for family in FAMILIES:
        image = Ami(
            backend,
            image_id(family),
            name=f"Deep Learning AMI ({family})",
            owner_id=_AMAZON,
            owner_alias="amazon",
            public=True,
            architecture="x86_64",
            virtualization_type="hvm",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name="/dev/sda1",
            creation_date=_CREATED,
            region_name=f"{region}a",
        )
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
                last_modified_date=_CREATED,
                version=1,
                data_type="aws:ec2:image",
            )
        )
