"""Report the quotas in a file like Service Quotas, and enforce those of Elastic IPs and VPCs.

A quota without an entry is infinite. AWS counts the default VPC too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend
from moto.ec2.models.vpcs import VPCBackend
from moto.servicequotas.models import ServiceQuotasBackend

from local.aws.moto_patching import wrap
from local.aws.scarcity.limits import ELASTIC_IPS, QUOTAS, VPCS, read_quotas


@dataclass(slots=True)
class _Source:
    path: Path | None = None
    """File with the quotas; None if all are infinite."""


_SOURCE: Final = _Source()


def install() -> None:
    """Patch moto: report the quotas that are set, and refuse addresses and VPCs beyond them."""
    wrap(ServiceQuotasBackend, "get_service_quota", _get_service_quota)
    wrap(ElasticAddressBackend, "allocate_address", _allocate_address)
    wrap(VPCBackend, "create_vpc", _create_vpc)


def read_from(path: Path | None) -> None:
    """Read the quotas from a file, which may change at any time and need not exist."""
    _SOURCE.path = path


def limit_of(name: str) -> int | None:
    """Return the limit of a quota by its name in QUOTAS; None if it is infinite."""
    return read_quotas(_SOURCE.path).get(name)


def _get_service_quota(original: Any, backend: ServiceQuotasBackend, service_code: str, quota_code: str) -> Any:
    limits = read_quotas(_SOURCE.path)
    for name, quota in QUOTAS.items():
        if (service_code, quota_code) == (quota.service, quota.code) and name in limits:
            described = {"ServiceCode": quota.service, "QuotaCode": quota.code, "QuotaName": quota.title}
            return described | {"Value": float(limits[name]), "Unit": "None", "Adjustable": True, "GlobalQuota": False}
    return original(backend, service_code, quota_code)


def _allocate_address(original: Any, backend: EC2Backend, *arguments: Any, **named: Any) -> Any:
    if _is_reached(ELASTIC_IPS, len(backend.addresses)):
        raise EC2ClientError("AddressLimitExceeded", "The maximum number of addresses has been reached.")
    return original(backend, *arguments, **named)


def _create_vpc(original: Any, backend: EC2Backend, *arguments: Any, **named: Any) -> Any:
    if _is_reached(VPCS, len(backend.vpcs)):
        raise EC2ClientError("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
    return original(backend, *arguments, **named)


def _is_reached(name: str, used: int) -> bool:
    limit = limit_of(name)
    return limit is not None and used >= limit
