"""Hold a finite number of places for a type in a zone, as a file says, and refuse launches beyond it in EC2's words.

A type without an entry has room everywhere. Spot has places of its own; a reservation's instances take none.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import Instance

from local.aws.moto_patching import wrap

FILE: Final = "capacity.json"
SHORTAGES: Final = frozenset({"InsufficientInstanceCapacity"})
"""Codes of the launches that an Auto Scaling group tries again by itself, because they may succeed later."""
_HOLDING: Final = ("pending", "running")
_RESERVED: Final = ("capacity-block",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """Say how many instances of a type a zone has room for, the running ones included."""

    instance_type: str
    zone: str
    count: int
    spot: bool = False

    @property
    def pool(self) -> tuple[str, str, bool]:
        return self.instance_type, self.zone, self.spot


@dataclass(kw_only=True, slots=True)
class _Source:
    """Hold where the limits stand, and the instances that take places of reservations instead."""

    path: Path | None = None
    reserved: set[str]


_SOURCE: Final = _Source(reserved=set())


def install() -> None:
    """Refuse launches for which there is no room."""
    wrap(EC2Backend, "run_instances", _run_instances)


def read_from(path: Path | None) -> None:
    """Take the limits from a file, which may change at any time and need not exist."""
    _SOURCE.path = path


def read_capacities(path: Path) -> tuple[Capacity, ...]:
    """Return the limits; none when there is no file."""
    try:
        return tuple(Capacity(**each) for each in json.loads(path.read_text()))
    except FileNotFoundError:
        return ()


def write_capacities(path: Path, capacities: Iterable[Capacity]) -> None:
    """Replace all limits at once."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps([asdict(each) for each in capacities]))
    partial.rename(path)


def zones_offering(region: str, instance_type: str) -> list[str]:
    """Return the zones of a region in which EC2 offers the type at all."""
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return sorted(each["Location"] for each in offered if each["InstanceType"] == instance_type)


def _run_instances(original: Any, backend: EC2Backend, image_id: str, count: int, *others: Any, **named: Any) -> Any:
    template: Any = named.get("launch_template")
    data: Mapping[str, Any] = backend._get_template_from_args(template).data if template else {}
    market = named.get("instance_market_options") or data.get("InstanceMarketOptions") or {}
    market_type = market if isinstance(market, str) else market.get("MarketType", "")
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
    if target or market_type in _RESERVED:
        launched = original(backend, image_id, count, *others, **named)
        _SOURCE.reserved |= {instance.id for instance in launched.instances}
        return launched
    instance_type = data.get("InstanceType") if named.get("is_instance_type_default") else named.get("instance_type")
    _check(backend, (instance_type or "m1.small", _zone(backend, named), market_type == "spot"), count)
    return original(backend, image_id, count, *others, **named)


def _zone(backend: EC2Backend, named: Mapping[str, Any]) -> str:
    subnets = [named.get("subnet_id"), *(nic.get("SubnetId") for nic in named.get("nics") or [])]
    found = next(filter(None, subnets), None)
    if found:
        return str(backend.get_subnet(found).availability_zone)
    return str(named.get("placement") or f"{backend.region_name}a")


def _check(backend: EC2Backend, pool: tuple[str, str, bool], count: int) -> None:
    capacities = {each.pool: each.count for each in read_capacities(_SOURCE.path)} if _SOURCE.path else {}
    if _room(backend, capacities, pool) >= count:
        return
    instance_type, zone, spot = pool
    if spot:
        message = "There is no Spot capacity available that matches your request."
        raise EC2ClientError("InsufficientInstanceCapacity", message)
    zones = zones_offering(backend.region_name, instance_type)
    others = [each for each in zones if _room(backend, capacities, (instance_type, each, spot)) >= count]
    short = f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you requested"
    message = f"{short} ({zone}). Our system will be working on provisioning additional capacity."
    if others:
        elsewhere = "by not specifying an Availability Zone in your request or choosing"
        message += f" You can currently get {instance_type} capacity {elsewhere} {', '.join(others)}."
    raise EC2ClientError("InsufficientInstanceCapacity", message)


def _room(backend: EC2Backend, capacities: Mapping[tuple[str, str, bool], int], pool: tuple[str, str, bool]) -> float:
    """Return how many more instances fit; infinite where no limit is set."""
    if pool not in capacities:
        return float("inf")
    return capacities[pool] - sum(_pool_of(instance) == pool for instance in _holding(backend))


def _holding(backend: EC2Backend) -> list[Instance]:
    instances: list[Instance] = backend.all_instances()
    return [each for each in instances if each.state in _HOLDING and each.id not in _SOURCE.reserved]


def _pool_of(instance: Instance) -> tuple[str, str, bool]:
    return instance.instance_type, str(instance.placement.zone), instance.lifecycle == "spot"
