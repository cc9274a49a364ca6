"""Buy a Capacity Block in the current local AWS: ``local-aws capacity-block``."""

import argparse
import math
from datetime import datetime, timedelta, timezone

from botocore.exceptions import ClientError

from local.errors import LocalError
from local.faults.clients import client

MAX_MINUTES = 60 * 24 * 182


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``local-aws capacity-block``."""
    parser.add_argument("--type", default="c5.large", help="instance type; by default c5.large")
    parser.add_argument("--count", type=int, default=3, help="instances; by default 3")
    parser.add_argument("--zone", help="availability zone; by default the first that has the type")
    parser.add_argument(
        "--start", type=_minutes, default=0.0, metavar="MINUTES", help="minutes until it starts; by default 0"
    )
    parser.add_argument(
        "--for", dest="length", type=_minutes, default=1440.0, metavar="MINUTES",
        help="its length; EC2 terminates its instances 30 minutes before its end; by default 1440, a day",
    )  # fmt: skip


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 <= minutes <= MAX_MINUTES:
        raise argparse.ArgumentTypeError(f"must be minutes from 0 to {MAX_MINUTES}, got {text!r}")
    return minutes


def buy_capacity_block(
    instance_type: str, *, count: int, starts: datetime, ends: datetime, zone: str | None = None
) -> str:
    """Buy a block in a zone, by default the first that has the type; return its ID. Raises LocalError."""
    ec2 = client("ec2")
    offers = ec2.describe_capacity_block_offerings(
        InstanceType=instance_type,
        InstanceCount=count,
        CapacityDurationHours=math.ceil((ends - starts) / timedelta(hours=1)),
        StartDateRange=starts,
        EndDateRange=ends,
    )["CapacityBlockOfferings"]
    offer = next((offering for offering in offers if zone in (None, offering["AvailabilityZone"])), None)
    if offer is None:
        zones = ", ".join(offering["AvailabilityZone"] for offering in offers)
        raise LocalError(f"{instance_type} is not in {zone}, only in {zones}")
    bought = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    return str(bought["CapacityReservation"]["CapacityReservationId"])


def run_command(options: argparse.Namespace) -> int:
    """Buy the block that the command line describes; print its ID and its times."""
    # Schedules act at full minutes.
    starts = (datetime.now(timezone.utc) + timedelta(minutes=options.start)).replace(second=0, microsecond=0)
    ends = starts + timedelta(minutes=options.length)
    try:
        block = buy_capacity_block(options.type, count=options.count, starts=starts, ends=ends, zone=options.zone)
    except ClientError as error:
        raise LocalError(error.response["Error"]["Message"]) from None
    print(f"{block}  {options.count} x {options.type}, {starts:%Y-%m-%dT%H:%M:%SZ} to {ends:%Y-%m-%dT%H:%M:%SZ}")
    return 0
