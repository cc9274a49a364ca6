"""Sell Capacity Blocks for ML, which moto lacks: offer and purchase them, and terminate their instances in time.

Any instance type is offered, at a price of zero, so that a rehearsal needs no large one. A StartDateRange in the past
creates a block that has started, and an EndDateRange sets any end, although AWS sells whole days that start at 11:30
UTC.
"""

import logging
import secrets
import threading
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from moto.autoscaling.models import AutoScalingBackend, autoscaling_backends
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.responses.instances import InstanceResponse

from local.control_plane.ec2.capacity_reservations import RESERVATIONS, TERMINATED_BEFORE, Reservation
from local.control_plane.limits.capacity import zones_offering
from local.control_plane.moto_patching import add
from local.control_plane.request_lock import LOCK

log = logging.getLogger(__name__)

_MAX_INSTANCES: Final = 64
"""Number of instances that a block may have ("Capacity Blocks for ML", EC2 User Guide)."""
_MAX_IN_ACCOUNT: Final = 256
"""Number of instances that all of an account's blocks may have at a time. EC2's code and words for more are unknown."""
_OFFERS: Final[dict[str, Reservation]] = {}
_RUNNING: Final = ("pending", "running")


def install() -> None:
    """Patch moto: add the calls."""
    add(InstanceResponse, "describe_capacity_block_offerings", _describe_offerings)
    add(InstanceResponse, "purchase_capacity_block", _purchase)


def _describe_offerings(response: Any) -> ActionResult:
    """Offer one block in each zone that has the type; a type that no zone has is offered in the first."""
    now = datetime.now(timezone.utc)
    instance_type = response._get_param("InstanceType")
    hours = int(response._get_param("CapacityDurationHours"))
    starts = _time(response._get_param("StartDateRange")) or now + timedelta(minutes=30)
    ends = _time(response._get_param("EndDateRange")) or starts + timedelta(hours=hours)
    count = int(response._get_param("InstanceCount") or 1)
    if count > _MAX_INSTANCES:
        message = f"Invalid value '{count}' for InstanceCount. Each Capacity Block can have up to"
        raise EC2ClientError("InvalidParameterValue", f"{message} {_MAX_INSTANCES} instances.")
    described = []
    for zone in zones_offering(response.region, instance_type) or [f"{response.region}a"]:
        offer = Reservation(
            reservation_id=f"cr-{secrets.token_hex(9)[:17]}",
            instance_type=instance_type,
            zone=zone,
            count=count,
            starts=starts,
            ends=ends,
        )
        offer_id = f"cbo-{secrets.token_hex(9)[:17]}"
        _OFFERS[offer_id] = offer
        described.append(_described(offer_id, offer) | {"CapacityBlockDurationHours": hours})
    return ActionResult({"CapacityBlockOfferings": described})


def _described(offer_id: str, offer: Reservation) -> dict[str, Any]:
    return {
        "CapacityBlockOfferingId": offer_id,
        "InstanceType": offer.instance_type,
        "AvailabilityZone": offer.zone,
        "InstanceCount": offer.count,
        "StartDate": offer.starts,
        "EndDate": offer.ends,
        "UpfrontFee": "0.00",
        "CurrencyCode": "USD",
        "Tenancy": "default",
    }


def _purchase(response: Any) -> ActionResult:
    offer_id = response._get_param("CapacityBlockOfferingId")
    if offer_id not in _OFFERS:
        message = "The Capacity Block offering ID cannot be found for this account."
        raise EC2ClientError("InvalidCapacityBlockOfferingIdNotFound", message)
    _check_total(_OFFERS[offer_id])
    block = _OFFERS.pop(offer_id)
    RESERVATIONS[block.reservation_id] = block
    autoscaling = autoscaling_backends[response.current_account][response.region]
    threading.Thread(target=_end, args=(block, response.ec2_backend, autoscaling), daemon=True).start()
    return ActionResult({"CapacityReservation": block.described()})


def _check_total(offer: Reservation) -> None:
    """Refuse a block during which the account would have too many instances; their number is largest at a start."""
    assert offer.starts is not None
    assert offer.ends is not None
    blocks = [(block.starts, block.ends, block.count) for block in RESERVATIONS.values() if block.starts and block.ends]
    for moment in [offer.starts, *(starts for starts, _, _ in blocks if offer.starts <= starts < offer.ends)]:
        total = offer.count + sum(count for starts, ends, count in blocks if starts <= moment < ends)
        if total > _MAX_IN_ACCOUNT:
            message = f"You can have up to {_MAX_IN_ACCOUNT} instances across Capacity Blocks"
            raise EC2ClientError("InvalidParameterValue", f"{message}, and this one would make them {total}.")


def _end(block: Reservation, backend: EC2Backend, autoscaling: AutoScalingBackend) -> None:
    """Terminate what still runs in the block, half an hour before its end."""
    assert block.ends is not None
    delay = (block.ends - TERMINATED_BEFORE - datetime.now(timezone.utc)).total_seconds()
    threading.Event().wait(min(max(delay, 0), threading.TIMEOUT_MAX / 2))
    with LOCK:
        running = [instance.id for instance in block.instances if instance.state in _RUNNING]
        if running:
            log.warning("Capacity Block %s ends: terminating %s", block.reservation_id, ", ".join(running))
            backend.terminate_instances(running)
            autoscaling.notify_terminate_instances(running)


def _time(time: datetime | None) -> datetime | None:
    """Return a time with its zone, which moto leaves out."""
    return time if time is None or time.tzinfo else time.replace(tzinfo=timezone.utc)
