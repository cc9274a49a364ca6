"""Implement On-Demand Capacity Reservations, which moto lacks: create, describe, cancel, and launch into them.

An instance of another type, zone, platform or tenancy, or in a placement group, does not fit in a reservation, and
EC2's message is the same as for one without available capacity.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance
from moto.ec2.responses.instances import InstanceResponse

from local.control_plane.ec2.run_instances.placement import DEFAULT_TENANCY
from local.control_plane.ec2.run_instances.request import market_type, requested_type, template_data
from local.control_plane.moto_patching import add, wrap

PLATFORM: Final = "Linux/UNIX"
"""Platform of every image of the local AWS."""
TERMINATED_BEFORE: Final = timedelta(minutes=30)
"""Time before a block's end at which EC2 terminates its instances ("Capacity Blocks", EC2 User Guide)."""
_RUNNING: Final = ("pending", "running")


@dataclass(kw_only=True, slots=True)
class Reservation:
    """One reservation and the instances that were launched into it."""

    reservation_id: str
    instance_type: str
    zone: str
    count: int
    platform: str = PLATFORM
    tenancy: str = DEFAULT_TENANCY
    cancelled: bool = False
    starts: datetime | None = None
    """Start of a Capacity Block; None for an On-Demand Capacity Reservation."""
    ends: datetime | None = None
    """End of a Capacity Block."""
    instances: list[Instance] = field(default_factory=list)

    @property
    def state(self) -> str:
        now = datetime.now(timezone.utc)
        if self.starts is not None and now < self.starts:
            return "scheduled"
        if self.ends is not None and now >= self.ends:
            return "expired"
        return "cancelled" if self.cancelled else "active"

    @property
    def is_ending(self) -> bool:
        """Return True if EC2 is already terminating the block's instances."""
        return self.ends is not None and datetime.now(timezone.utc) >= self.ends - TERMINATED_BEFORE

    @property
    def is_block(self) -> bool:
        return self.starts is not None

    @property
    def available(self) -> int:
        return self.count - sum(instance.state in _RUNNING for instance in self.instances)

    def described(self) -> dict[str, Any]:
        return {
            "CapacityReservationId": self.reservation_id,
            "InstanceType": self.instance_type,
            "InstancePlatform": self.platform,
            "AvailabilityZone": self.zone,
            "Tenancy": self.tenancy,
            "TotalInstanceCount": self.count,
            "AvailableInstanceCount": self.available,
            "InstanceMatchCriteria": "targeted",
            "ReservationType": "capacity-block" if self.is_block else "default",
            "State": self.state,
            **({"StartDate": self.starts, "EndDate": self.ends, "EndDateType": "limited"} if self.is_block else {}),
        }


RESERVATIONS: Final[dict[str, Reservation]] = {}


def install() -> None:
    """Patch moto: add the calls, and launch into the reservation that a launch template names."""
    add(InstanceResponse, "create_capacity_reservation", _create)
    add(InstanceResponse, "describe_capacity_reservations", _describe)
    add(InstanceResponse, "cancel_capacity_reservation", _cancel)
    wrap(EC2Backend, "run_instances", _run_instances)


def _create(response: Any) -> ActionResult:
    reservation = Reservation(
        reservation_id=f"cr-{secrets.token_hex(9)[:17]}",
        instance_type=response._get_param("InstanceType"),
        zone=response._get_param("AvailabilityZone"),
        count=int(response._get_param("InstanceCount")),
        platform=response._get_param("InstancePlatform"),
        tenancy=response._get_param("Tenancy", DEFAULT_TENANCY),
    )
    RESERVATIONS[reservation.reservation_id] = reservation
    return ActionResult({"CapacityReservation": reservation.described()})


def _describe(response: Any) -> ActionResult:
    ids = response._get_param("CapacityReservationIds", []) or list(RESERVATIONS)
    return ActionResult({"CapacityReservations": [find(reservation_id).described() for reservation_id in ids]})


def _cancel(response: Any) -> ActionResult:
    find(response._get_param("CapacityReservationId")).cancelled = True
    return ActionResult({"Return": True})


def find(reservation_id: str) -> Reservation:
    if reservation_id not in RESERVATIONS:
        message = f"The capacity reservation ID '{reservation_id}' does not exist"
        raise EC2ClientError("InvalidCapacityReservationId.NotFound", message)
    return RESERVATIONS[reservation_id]


def _check_target(reservation: Reservation, *, market: str | None, preference: str | None) -> None:
    """Refuse a launch with another market, with a preference or before a block's start, in EC2's words.

    The words are those of "Error codes" (EC2 API), and for the preference those that users report. An On-Demand
    reservation has no market. The only preference beside a target is the one that changes nothing.
    """
    if preference not in (None, "capacity-reservations-only"):
        message = (
            "The request can include either a CapacityReservationId or a CapacityReservationPreference but not both."
        )
        raise EC2ClientError("InvalidParameterCombination", message)
    if market != ("capacity-block" if reservation.is_block else None):
        message = "The market type (purchasing) option is not valid. Choose a different market type and try again."
        raise EC2ClientError("InvalidParameterValue", message)
    if reservation.state == "scheduled":
        message = f"Your Capacity Block reservation {reservation.reservation_id} is not active yet."
        raise EC2ClientError("InvalidCapacityReservationState.PendingActivation", message)


def _fits(reservation: Reservation, instance_type: str, zone: str, placement: Mapping[str, str]) -> bool:
    """Return True if the reservation is for such instances; no reservation here is for a placement group."""
    requested = instance_type, zone, PLATFORM, placement.get("Tenancy", DEFAULT_TENANCY)
    is_same = requested == (reservation.instance_type, reservation.zone, reservation.platform, reservation.tenancy)
    return is_same and not placement.get("GroupName")


def _run_instances(original: Any, backend: EC2Backend, image_id: str, count: int, *others: Any, **kwargs: Any) -> Any:
    data = template_data(backend, kwargs)
    specification = data.get("CapacityReservationSpecification", {})
    if not (reservation_id := specification.get("CapacityReservationTarget", {}).get("CapacityReservationId")):
        return original(backend, image_id, count, *others, **kwargs)
    reservation = find(reservation_id)
    zone = backend.get_subnet(kwargs["subnet_id"]).availability_zone if kwargs.get("subnet_id") else reservation.zone
    _check_target(
        reservation,
        market=market_type(kwargs, data),
        preference=specification.get("CapacityReservationPreference"),
    )
    if (
        not _fits(reservation, requested_type(kwargs, data), zone, data.get("Placement", {}))
        or reservation.state != "active"
        or reservation.is_ending
        or reservation.available < count
    ):
        message = "The requested reservation does not have sufficient compatible and available capacity"
        raise EC2ClientError("ReservationCapacityExceeded", f"{message} for this request.")
    launched = original(backend, image_id, count, *others, **kwargs)
    for instance in launched.instances:
        instance.capacity_reservation_id = reservation_id
        if reservation.is_block:
            instance.lifecycle = "capacity-block"  # moto calls every market spot
    reservation.instances += launched.instances
    return launched
