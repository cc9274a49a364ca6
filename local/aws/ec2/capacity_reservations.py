"""Keep On-Demand Capacity Reservations, which moto lacks: create, describe and cancel them, and launch into them.

An instance of another type or zone does not fit in a reservation, and EC2 has the same words for it as for a full one.
"""

import secrets
from dataclasses import dataclass, field
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance
from moto.ec2.responses.instances import InstanceResponse

from local.aws.moto_patching import add, wrap

_RUNNING: Final = ("pending", "running")


@dataclass(kw_only=True, slots=True)
class _Reservation:
    """One reservation and the instances that were launched into it."""

    reservation_id: str
    instance_type: str
    zone: str
    count: int
    state: str = "active"
    instances: list[Instance] = field(default_factory=list)

    @property
    def available(self) -> int:
        return self.count - sum(each.state in _RUNNING for each in self.instances)

    def described(self) -> dict[str, Any]:
        return {
            "CapacityReservationId": self.reservation_id,
            "InstanceType": self.instance_type,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": self.zone,
            "Tenancy": "default",
            "TotalInstanceCount": self.count,
            "AvailableInstanceCount": self.available,
            "InstanceMatchCriteria": "targeted",
            "ReservationType": "default",
            "State": self.state,
        }


_RESERVATIONS: Final[dict[str, _Reservation]] = {}


def install() -> None:
    """Add the calls to moto, and launch into the reservation that a launch template names."""
    add(InstanceResponse, "create_capacity_reservation", _create)
    add(InstanceResponse, "describe_capacity_reservations", _describe)
    add(InstanceResponse, "cancel_capacity_reservation", _cancel)
    wrap(EC2Backend, "run_instances", _run_instances)


def _create(response: Any) -> ActionResult:
    made = _Reservation(
        reservation_id=f"cr-{secrets.token_hex(9)[:17]}",
        instance_type=response._get_param("InstanceType"),
        zone=response._get_param("AvailabilityZone"),
        count=int(response._get_param("InstanceCount")),
    )
    _RESERVATIONS[made.reservation_id] = made
    return ActionResult({"CapacityReservation": made.described()})


def _describe(response: Any) -> ActionResult:
    wanted = response._get_param("CapacityReservationIds", []) or list(_RESERVATIONS)
    return ActionResult({"CapacityReservations": [_find(each).described() for each in wanted]})


def _cancel(response: Any) -> ActionResult:
    _find(response._get_param("CapacityReservationId")).state = "cancelled"
    return ActionResult({"Return": True})


def _find(reservation_id: str) -> _Reservation:
    if reservation_id not in _RESERVATIONS:
        message = f"The capacity reservation ID '{reservation_id}' does not exist"
        raise EC2ClientError("InvalidCapacityReservationId.NotFound", message)
    return _RESERVATIONS[reservation_id]


def _run_instances(original: Any, backend: EC2Backend, image_id: str, count: int, *others: Any, **named: Any) -> Any:
    template: Any = named.get("launch_template")
    data = backend._get_template_from_args(template).data if template else {}
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    if not (reservation_id := target.get("CapacityReservationId")):
        return original(backend, image_id, count, *others, **named)
    found = _find(reservation_id)
    instance_type = data.get("InstanceType") if named.get("is_instance_type_default") else named.get("instance_type")
    zone = backend.get_subnet(named["subnet_id"]).availability_zone if named.get("subnet_id") else found.zone
    fits = (instance_type, zone) == (found.instance_type, found.zone)
    if not fits or found.state != "active" or found.available < count:
        word = "The requested reservation does not have sufficient compatible and available capacity"
        raise EC2ClientError("ReservationCapacityExceeded", f"{word} for this request.")
    launched = original(backend, image_id, count, *others, **named)
    found.instances += launched.instances
    return launched
