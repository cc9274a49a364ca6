"""Report the quotas in a file like Service Quotas, and enforce those of Elastic IPs and VPCs.

A quota without an entry is infinite, for which Service Quotas answers UNLIMITED. AWS counts the default VPC too.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend
from moto.ec2.models.vpcs import VPCBackend
from moto.servicequotas.models import ServiceQuotasBackend
from moto.servicequotas.responses import ServiceQuotasResponse

from local.control_plane.limits.limit_files import ELASTIC_IPS, QUOTAS, VPCS, read_quotas
from local.control_plane.moto_patching import add, wrap


@dataclass(slots=True)
class _Source:
    path: Path | None = None
    """File with the quotas; None if all are infinite."""


_SOURCE: Final = _Source()
UNLIMITED: Final = 100_000
"""Value that Service Quotas answers as AWS's default of a quota that nothing here enforces."""


def install() -> None:
    """Patch moto: report the quotas that are set, and refuse addresses and VPCs beyond them."""
    wrap(ServiceQuotasBackend, "get_service_quota", _get_service_quota)
    add(ServiceQuotasResponse, "get_aws_default_service_quota", _get_default)
    wrap(ElasticAddressBackend, "allocate_address", _allocate_address)
    wrap(VPCBackend, "create_vpc", _create_vpc)


def use_quotas_file(path: Path | None) -> None:
    """Set the file of quotas, which is read at each call; it need not exist."""
    _SOURCE.path = path


def get_limit(name: str) -> int | None:
    """Return the limit of a quota by its name in QUOTAS; None if it is infinite."""
    return read_quotas(_SOURCE.path).get(name)


def _get_service_quota(original: Any, backend: ServiceQuotasBackend, service_code: str, quota_code: str) -> Any:
    limits = read_quotas(_SOURCE.path)
    for name, quota in QUOTAS.items():
        if (service_code, quota_code) == (quota.service, quota.code) and name in limits:
            return _described(service_code, quota_code, title=quota.title, value=limits[name])
    return original(backend, service_code, quota_code)


def _get_default(response: ServiceQuotasResponse) -> str:
    request = json.loads(response.body)
    service, code = request["ServiceCode"], request["QuotaCode"]
    title = next((quota.title for quota in QUOTAS.values() if (quota.service, quota.code) == (service, code)), code)
    return json.dumps({"Quota": _described(service, code, title=title, value=UNLIMITED)})


def _described(service: str, code: str, *, title: str, value: int) -> dict[str, Any]:
    named = {"ServiceCode": service, "QuotaCode": code, "QuotaName": title}
    return named | {"Value": float(value), "Unit": "None", "Adjustable": True, "GlobalQuota": False}


def _allocate_address(original: Any, backend: EC2Backend, *args: Any, **kwargs: Any) -> Any:
    if _is_reached(ELASTIC_IPS, len(backend.addresses)):
        raise EC2ClientError("AddressLimitExceeded", "The maximum number of addresses has been reached.")
    return original(backend, *args, **kwargs)


def _create_vpc(original: Any, backend: EC2Backend, *args: Any, **kwargs: Any) -> Any:
    if _is_reached(VPCS, len(backend.vpcs)):
        raise EC2ClientError("VpcLimitExceeded", "The maximum number of VPCs has been reached.")
    return original(backend, *args, **kwargs)


def _is_reached(name: str, used: int) -> bool:
    limit = get_limit(name)
    return limit is not None and used >= limit
