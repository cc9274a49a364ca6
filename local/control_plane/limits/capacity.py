"""Limit the capacity for a type in a zone according to a file, and refuse launches beyond it in EC2's words.

A zone has the types that EC2 offers there, as moto lists them. A type without an entry has capacity in all of them.
Spot has its own capacity; a reservation's instances use none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import Instance

from local.control_plane.ec2.run_instances.request import market_type, requested_type, template_data
from local.control_plane.limits.limit_files import CapacityPool, read_capacities
from local.control_plane.limits.vcpu_quotas import check_quota
from local.control_plane.moto_patching import wrap

UNSUPPORTED: Final = "Unsupported"
SHORTAGES: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "ReservationCapacityExceeded",
        "VcpuLimitExceeded",
    }
)
"""Error codes after which an Auto Scaling group retries a launch, because it may succeed later."""
_USING_CAPACITY: Final = ("pending", "running")


@dataclass(kw_only=True, slots=True)
class _Source:
    """Source of the limits: their file, and the instances that use reservations instead of capacity."""

    path: Path | None = None
    reserved: set[str]


_SOURCE: Final = _Source(reserved=set())


def install() -> None:
    """Patch moto: refuse launches where the type is not offered, beyond a quota, or without capacity."""
    wrap(EC2Backend, "run_instances", _run_instances)


def use_limits_file(path: Path | None) -> None:
    """Set the file of limits, which is read at each launch; it need not exist."""
    _SOURCE.path = path


def zones_offering(region: str, instance_type: str) -> list[str]:
    """Return the zones of a region in which EC2 offers the type at all."""
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return sorted(offer["Location"] for offer in offered if offer["InstanceType"] == instance_type)


def check_offering(region: str, instance_type: str, zones: Iterable[str]) -> None:
    """Raise RunInstances' error if EC2 offers the type in none of the zones."""
    offering = zones_offering(region, instance_type)
    requested = [*zones]
    if not offering:
        message = "The requested configuration is currently not supported."
        raise EC2ClientError(UNSUPPORTED, f"{message} Please check the documentation for supported configurations.")
    if not set(offering) & set(requested):
        message = f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone"
        advice = "Please retry your request by not specifying an Availability Zone or choosing"
        raise EC2ClientError(UNSUPPORTED, f"{message} ({', '.join(requested)}). {advice} {', '.join(offering)}.")


def _run_instances(original: Any, backend: EC2Backend, image_id: str, count: int, *others: Any, **kwargs: Any) -> Any:
    data = template_data(backend, kwargs)
    market = market_type(kwargs, data)
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
    if target or market == "capacity-block":
        launched = original(backend, image_id, count, *others, **kwargs)
        _SOURCE.reserved |= {instance.id for instance in launched.instances}
        return launched
    instance_type, zone, spot = requested_type(kwargs, data), _zone(backend, kwargs), market == "spot"
    check_offering(backend.region_name, instance_type, [zone])
    running = [i.instance_type for i in _capacity_users(backend) if (i.lifecycle == "spot") == spot]
    check_quota(instance_type, spot=spot, count=count, running=running)
    _check_capacity(backend, CapacityPool(instance_type=instance_type, zone=zone, spot=spot), count)
    return original(backend, image_id, count, *others, **kwargs)


def _zone(backend: EC2Backend, named: Mapping[str, Any]) -> str:
    subnets = [named.get("subnet_id"), *(nic.get("SubnetId") for nic in named.get("nics") or [])]
    subnet = next(filter(None, subnets), None)
    if subnet:
        return str(backend.get_subnet(subnet).availability_zone)
    return str(named.get("placement") or f"{backend.region_name}a")


def available_capacity(backend: EC2Backend, pool: CapacityPool) -> float:
    """Return how many more instances can be launched from a pool; infinite if it has no limit."""
    limits = {capacity.pool: capacity.count for capacity in read_capacities(_SOURCE.path)}
    if pool not in limits:
        return float("inf")
    return limits[pool] - sum(_pool(instance) == pool for instance in _capacity_users(backend))


def _check_capacity(backend: EC2Backend, pool: CapacityPool, count: int) -> None:
    if available_capacity(backend, pool) >= count:
        return
    if pool.spot:
        message = "There is no Spot capacity available that matches your request."
        raise EC2ClientError("InsufficientInstanceCapacity", message)
    zones = zones_offering(backend.region_name, pool.instance_type)
    others = [zone for zone in zones if available_capacity(backend, replace(pool, zone=zone)) >= count]
    short = f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone you requested"
    message = f"{short} ({pool.zone}). Our system will be working on provisioning additional capacity."
    if others:
        advice = "by not specifying an Availability Zone in your request or choosing"
        message += f" You can currently get {pool.instance_type} capacity {advice} {', '.join(others)}."
    raise EC2ClientError("InsufficientInstanceCapacity", message)


def _capacity_users(backend: EC2Backend) -> list[Instance]:
    instances: list[Instance] = backend.all_instances()
    return [i for i in instances if i.state in _USING_CAPACITY and i.id not in _SOURCE.reserved]


def _pool(instance: Instance) -> CapacityPool:
    spot = instance.lifecycle == "spot"
    return CapacityPool(instance_type=instance.instance_type, zone=str(instance.placement.zone), spot=spot)
