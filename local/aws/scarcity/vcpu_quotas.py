"""Enforce the vCPU quotas in a file, and report them like Service Quotas; a quota without an entry is infinite.

AWS: "Amazon EC2 instance type quotas" in the Amazon EC2 Instance Types Guide. Instances of reservations do not count.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.servicequotas.models import ServiceQuotasBackend

from local.aws.moto_patching import wrap
from local.aws.scarcity.limits import QUOTAS, read_quotas


@dataclass(slots=True)
class _Source:
    path: Path | None = None
    """File with the quotas; None if all are infinite."""


_SOURCE: Final = _Source()


def install() -> None:
    """Patch moto: report the quotas that are set; a launch enforces them (``check_quota``)."""
    wrap(ServiceQuotasBackend, "get_service_quota", _get_service_quota)


def read_from(path: Path | None) -> None:
    """Read the quotas from a file, which may change at any time and need not exist."""
    _SOURCE.path = path


def check_quota(instance_type: str, *, spot: bool, count: int, running: Iterable[str]) -> None:
    """Raise RunInstances' error if ``count`` more instances do not fit beside the types running in this market."""
    limit = read_quotas(_SOURCE.path).get(name := _quota_of(instance_type, spot=spot))
    if limit is None:
        return
    used = sum(_vcpus(each) for each in running if _quota_of(each, spot=spot) == name)
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


def _quota_of(instance_type: str, *, spot: bool) -> str:
    """Return the name of the quota that counts a type; empty if no known quota counts its family."""
    letters = re.match(r"[a-z]+", instance_type)
    family = letters[0] if letters else ""
    return next((name for name, each in QUOTAS.items() if family in each.families and each.spot == spot), "")


def _vcpus(instance_type: str) -> int:
    info: Mapping[str, Any] = INSTANCE_TYPES[instance_type]["VCpuInfo"]
    return int(info["DefaultVCpus"])


def _get_service_quota(original: Any, backend: ServiceQuotasBackend, service_code: str, quota_code: str) -> Any:
    limits = read_quotas(_SOURCE.path)
    for name, quota in QUOTAS.items():
        if (service_code, quota_code) == ("ec2", quota.code) and name in limits:
            described = {"ServiceCode": "ec2", "QuotaCode": quota.code, "QuotaName": quota.title}
            return described | {"Value": float(limits[name]), "Unit": "None", "Adjustable": True, "GlobalQuota": False}
    return original(backend, service_code, quota_code)
