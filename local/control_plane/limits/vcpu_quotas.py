"""Enforce the vCPU quotas that are set.

AWS: "Amazon EC2 instance type quotas" in the Amazon EC2 Instance Types Guide. Instances of reservations do not count.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES

from local.control_plane.limits.limit_files import QUOTAS
from local.control_plane.limits.quotas import get_limit


def check_quota(instance_type: str, *, spot: bool, count: int, running: Iterable[str]) -> None:
    """Raise RunInstances' error if ``count`` more instances do not fit beside the types running in this market."""
    limit = get_limit(name := _quota_name(instance_type, spot=spot))
    if limit is None:
        return
    used = sum(_vcpus(running_type) for running_type in running if _quota_name(running_type, spot=spot) == name)
    if used + count * _vcpus(instance_type) <= limit:
        return
    if spot:
        raise EC2ClientError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    bucket = "for the instance bucket that the specified instance type belongs to"
    raise EC2ClientError(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {limit} allows {bucket}. "
        "Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
    )


def _quota_name(instance_type: str, *, spot: bool) -> str:
    """Return the name of the quota that counts a type; empty if no known quota counts its family."""
    letters = re.match(r"[a-z]+", instance_type)
    family = letters[0] if letters else ""
    return next((name for name, quota in QUOTAS.items() if family in quota.families and quota.spot == spot), "")


def _vcpus(instance_type: str) -> int:
    info: Mapping[str, Any] = INSTANCE_TYPES[instance_type]["VCpuInfo"]
    return int(info["DefaultVCpus"])
