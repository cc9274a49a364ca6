"""Read service quotas, and advise how to request more.

The codes are the same in every account: ``aws service-quotas list-service-quotas --service-code ec2``.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cli.preflight.target import PreflightTarget


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """One quota, in the terms of Service Quotas."""

    service: str
    code: str
    name: str


def _running(code: str, family: str) -> Quota:
    return Quota(service="ec2", code=code, name=f"Running On-Demand {family} instances")


def _spot(code: str, family: str) -> Quota:
    return Quota(service="ec2", code=code, name=f"All {family} Spot Instance Requests")


ELASTIC_IPS: Final = Quota(service="ec2", code="L-0263D0A3", name="EC2-VPC Elastic IPs")
GP3_TIB: Final = Quota(service="ebs", code="L-7A658B76", name="Storage for General Purpose SSD (gp3) volumes, in TiB")
INTERFACES: Final = Quota(service="vpc", code="L-DF5E4CA3", name="Network interfaces per Region")
VPCS: Final = Quota(service="vpc", code="L-F678F1CE", name="VPCs per Region")

_STANDARD: Final = _running("L-1216C47A", "Standard (A, C, D, H, I, M, R, T, Z)")
_G: Final = _running("L-DB2E81BA", "G and VT")
_VCPU_QUOTAS: Final[Mapping[str, Quota]] = {
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), _STANDARD),
    **dict.fromkeys(("g", "gr", "vt"), _G),
    "p": _running("L-417A185B", "P"),
    "x": _running("L-7295265B", "X"),
    "f": _running("L-74FC7D96", "F"),
    "inf": _running("L-1945791B", "Inf"),
    "trn": _running("L-2C3B7624", "Trn"),
    "dl": _running("L-6E869C2A", "DL"),
}


_SPOT_QUOTAS: Final[Mapping[Quota, Quota]] = {
    _STANDARD: _spot("L-34B43A08", "Standard (A, C, D, H, I, M, R, T, Z)"),
    _G: _spot("L-3819A6DF", "G and VT"),
    _VCPU_QUOTAS["p"]: _spot("L-7212CCBC", "P"),
}
"""Spot quota for each on-demand quota."""


def vcpu_quota(instance_type: str, *, is_spot: bool = False) -> Quota | None:
    """Return the quota that counts the type's vCPUs; None for an unknown family."""
    letters = re.match(r"[a-z]+", instance_type)
    quota = _VCPU_QUOTAS.get(letters[0]) if letters else None
    return quota if quota is None or not is_spot else _SPOT_QUOTAS.get(quota)


def quota_floor(target: PreflightTarget, quota: Quota) -> int:
    """Return the quota as a whole number, for things that are counted."""
    return math.floor(quota_value(target, quota))


def quota_value(target: PreflightTarget, quota: Quota) -> float:
    """Return the quota, for things that are measured."""
    client = target.clients.service_quotas
    try:
        response = client.get_service_quota(ServiceCode=quota.service, QuotaCode=quota.code)
    except client.exceptions.NoSuchResourceException:
        # In some accounts, a quota has no value until it is first changed.
        response = client.get_aws_default_service_quota(ServiceCode=quota.service, QuotaCode=quota.code)
    allowed: float = response["Quota"]["Value"]
    return allowed


def increase_advice(quota: Quota, *, wanted: int, region: str) -> str:
    """Return the advice for requesting more, in the console or with a command."""
    page = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/{quota.service}/quotas/{quota.code}"
    return (
        f"ask for {wanted} in the console (Service Quotas, {quota.name}, {page}) or with "
        f"aws service-quotas request-service-quota-increase --region {region} --service-code {quota.service} "
        f"--quota-code {quota.code} --desired-value {wanted}"
    )
