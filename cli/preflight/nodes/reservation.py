"""Check that the Capacity Reservation or Capacity Block in the settings has room for every node."""

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError

from bootstrap.contract import CAPACITY_BLOCK_OUTPUT, CLUSTER_TAG
from cli.preflight.finding import Finding, ok, problem, warning
from cli.preflight.nodes.offering import deploy_zone
from cli.preflight.target import PreflightTarget, find_current_stack
from cli.reports.capacity_block import DeployedBlock, parse_deployed_block
from stacks.settings.parsing import format_utc, parse_time
from stacks.settings.purchase import CAPACITY_BLOCK, RESERVATION, CapacityBlock

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef

SUBJECT: Final = "reservation"
PLATFORM: Final = "Linux/UNIX"
"""Platform of the nodes' images, in EC2's words."""
TENANCY: Final = "default"
MAX_DEPLOY_TIME: Final = timedelta(minutes=30)
"""Time before a block's start in which a deploy may finish too late."""
LOOK_UP: Final = "cc-api-provider:"
"""Beginning of the key under which the CDK stores what it has looked up about a block."""


def check_reservation(target: PreflightTarget) -> Iterator[Finding]:
    """Compare the reservation with the cluster; EC2 refuses whatever does not fit node by node, for half an hour."""
    name = target.props.capacity_reservation
    if name is None:
        return
    try:
        [reservation] = target.clients.ec2.describe_capacity_reservations(CapacityReservationIds=[name])[
            "CapacityReservations"
        ]
    except ClientError as error:
        if error.response["Error"]["Code"] != "InvalidCapacityReservationId.NotFound":
            raise
        listing = f"list yours with: aws ec2 describe-capacity-reservations --region {target.region}"
        yield problem(SUBJECT, f"there is no {name} in {target.region}", listing)
        return
    if (is_block := reservation.get("ReservationType") == CAPACITY_BLOCK) != target.props.uses_capacity_block:
        kind, word = ("a", CAPACITY_BLOCK) if is_block else ("no", RESERVATION)
        yield problem(SUBJECT, f"{name} is {kind} Capacity Block", f"set purchase to {word}")
        return
    faults = [*_faults(target, name, reservation), *_misfits(name, reservation)]
    kind = target.props.instance_type
    yield from faults or [ok(SUBJECT, f"{name} holds {target.props.node_counts[kind]} x {kind}")]
    if is_block:
        yield from _block_times(target, name, reservation)
    elif (end := reservation.get("EndDate")) is not None:
        sentence = f"{name} ends at {format_utc(end)}, and nodes launched after that fail"
        yield warning(SUBJECT, sentence, "set expires before that, or give the reservation no end")


def _faults(target: PreflightTarget, name: str, reservation: "CapacityReservationTypeDef") -> Iterator[Finding]:
    props = target.props
    state, usable = reservation.get("State", ""), ("scheduled", "active") if props.uses_capacity_block else ("active",)
    if state not in usable:
        yield problem(SUBJECT, f"{name} is {state}", f"choose one that is {' or '.join(usable)}")
    if (reserved := reservation.get("InstanceType")) != props.instance_type:
        yield problem(
            SUBJECT, f"{name} is for {reserved}, the nodes are {props.instance_type}", "choose another of them"
        )
    zone = deploy_zone(target)
    if (its := reservation.get("AvailabilityZone")) != zone and zone is not None:
        yield problem(SUBJECT, f"{name} is in {its}, the cluster in {zone}", f"put the cluster in {its}")
    # A block that has not started has nothing available yet.
    total, available = (reservation.get("TotalInstanceCount", 0), reservation.get("AvailableInstanceCount", 0))
    free = (total if state == "scheduled" else available) + _own_instances(target, name)
    needed = props.node_counts.get(props.instance_type, 0)
    if free < needed:
        among = ", the master among them" if props.master_type == props.instance_type else ""
        sentence = f"{name} has room for {free} of {needed} nodes{among}"
        yield problem(SUBJECT, sentence, "make it larger, or lower worker_count")


def _block_times(target: PreflightTarget, name: str, reservation: "CapacityReservationTypeDef") -> Iterator[Finding]:
    """Report when the nodes start and end, and whether the deploy removes the end of another block's nodes."""
    now = datetime.now(timezone.utc)
    starts, ends = reservation.get("StartDate"), reservation.get("EndDate")
    if starts is None or ends is None:
        yield problem(SUBJECT, f"{name} has no start and end", "choose another")
        return
    kind = target.props.instance_type
    block = CapacityBlock(block_id=name, instance_type=kind, zone="", count=0, starts_at=starts, ends_at=ends)
    if block.pauses_at <= now:
        yield problem(SUBJECT, f"{name} is over: its nodes end at {format_utc(block.pauses_at)}", "choose the next one")
    else:
        yield ok(
            SUBJECT,
            f"the nodes start at {format_utc(starts)} and end at {format_utc(block.pauses_at)}, "
            f"because {name} ends at {format_utc(ends)}",
        )
    yield from _stale_dates(target, reservation)
    deployed = _deployed_block(target)
    if deployed is None or deployed.block_id != name:
        yield from _late_start(block, now)
    if deployed is not None and deployed.block_id != name and deployed.starts_at <= now < deployed.pauses_at:
        until = format_utc(deployed.pauses_at)
        sentence = f"{deployed.block_id} holds the cluster until {until}, and this deploy removes that pause"
        yield warning(SUBJECT, sentence, "deploy after it, or dlcluster pause before")


def _late_start(block: CapacityBlock, now: datetime) -> Iterator[Finding]:
    """Warn if the schedules of a first deploy now may be created too late to start the nodes."""
    name = block.block_id
    fix = "dlcluster resume after the deploy, once the block has begun"
    if block.starts_at <= now < block.pauses_at:
        yield warning(SUBJECT, f"{name} has begun: its start has passed, and the deploy may start no node", fix)
    elif now < block.starts_at < now + MAX_DEPLOY_TIME:
        yield warning(
            SUBJECT, f"{name} starts at {format_utc(block.starts_at)}, perhaps before the deploy has ended", fix
        )


def _stale_dates(target: PreflightTarget, reservation: "CapacityReservationTypeDef") -> Iterator[Finding]:
    """Compare the block's times with those in cdk.context.json, from which the synth creates the schedules."""
    name = target.props.capacity_reservation or ""
    for key, answers in target.cdk_context.items():
        if not key.startswith(LOOK_UP) or name not in key:
            continue
        answer = answers[0] if isinstance(answers, list) and answers and isinstance(answers[0], dict) else {}
        for what, live in (("StartDate", reservation.get("StartDate")), ("EndDate", reservation.get("EndDate"))):
            kept = answer.get(what)
            if live is not None and parse_time(str(kept)) != live:
                sentence = f"{what} of {name} is {format_utc(live)}, and cdk.context.json has {kept}"
                yield problem(SUBJECT, sentence, f"cdk context --reset {shlex.quote(key)}")
                break


def _deployed_block(target: PreflightTarget) -> DeployedBlock | None:
    stack = find_current_stack(target)
    outputs = stack.get("Outputs", []) if stack else []
    return parse_deployed_block(
        {out.get("OutputKey"): out.get("OutputValue") for out in outputs}.get(CAPACITY_BLOCK_OUTPUT)
    )


def _misfits(name: str, reservation: "CapacityReservationTypeDef") -> Iterator[Finding]:
    """Find the attributes because of which EC2 would launch none of the nodes into the reservation."""
    fix = "choose another"
    if (group := reservation.get("PlacementGroupArn")) is not None:
        group_name = group.rpartition("/")[2]
        yield problem(SUBJECT, f"{name} is for placement group {group_name}, the nodes are in none", fix)
    if (platform := reservation.get("InstancePlatform", PLATFORM)) != PLATFORM:
        yield problem(SUBJECT, f"{name} is for {platform}, the nodes are {PLATFORM}", fix)
    if (tenancy := reservation.get("Tenancy", TENANCY)) != TENANCY:
        yield problem(SUBJECT, f"{name} has tenancy {tenancy}, the nodes {TENANCY}", fix)


def _own_instances(target: PreflightTarget, name: str) -> int:
    """Count the cluster's instances that already occupy a place in the reservation."""
    pages = target.clients.ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [target.props.cluster_name]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
    )
    instances = (instance for page in pages for group in page["Reservations"] for instance in group["Instances"])
    return sum(instance.get("CapacityReservationId") == name for instance in instances)
