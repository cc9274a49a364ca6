"""Check that the Capacity Reservation of the settings holds every node."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from cli.preflight.finding import Finding, ok, problem
from cli.preflight.nodes.offering import deploy_zone
from cli.preflight.target import PreflightTarget, is_deployed

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef

SUBJECT: Final = "reservation"


def reservation(target: PreflightTarget) -> Iterator[Finding]:
    """Compare the reservation with the cluster; what does not fit EC2 refuses node by node, for half an hour."""
    name = target.props.capacity_reservation
    if name is None:
        return
    try:
        [found] = target.clients.ec2.describe_capacity_reservations(CapacityReservationIds=[name])[
            "CapacityReservations"
        ]
    except ClientError as error:
        if error.response["Error"]["Code"] != "InvalidCapacityReservationId.NotFound":
            raise
        listing = f"list yours with: aws ec2 describe-capacity-reservations --region {target.region}"
        yield problem(SUBJECT, f"there is no {name} in {target.region}", listing)
        return
    faults = list(_faults(target, name, found))
    yield from faults or [ok(SUBJECT, f"{name} holds {target.nodes} x {target.props.instance_type}")]


def _faults(target: PreflightTarget, name: str, found: "CapacityReservationTypeDef") -> Iterator[Finding]:
    props = target.props
    if (state := found.get("State")) != "active":
        yield problem(SUBJECT, f"{name} is {state}", "choose one that is active")
    if (reserved := found.get("InstanceType")) != props.instance_type:
        yield problem(
            SUBJECT, f"{name} is for {reserved}, the nodes are {props.instance_type}", "choose another of them"
        )
    zone = deploy_zone(target)
    if (its := found.get("AvailabilityZone")) != zone:
        yield problem(SUBJECT, f"{name} is in {its}, the cluster in {zone}", f"put the cluster in {its}")
    # Those of a cluster that runs are in it already.
    free = found.get("TotalInstanceCount", 0) if is_deployed(target) else found.get("AvailableInstanceCount", 0)
    if free < target.nodes:
        sentence = f"{name} has room for {free} of {target.nodes} nodes, the master among them"
        yield problem(SUBJECT, sentence, "make it larger, or lower worker_count")
