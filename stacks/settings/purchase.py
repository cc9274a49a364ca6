"""Define the settings for how to buy the nodes: on demand, as spot instances, from a reservation or as a block."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from stacks.settings.base import SettingsError, require, shown
from stacks.settings.efa import EfaSettings
from stacks.settings.parsing import parse_time

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
RESERVATION: Final = "reservation"
CAPACITY_BLOCK: Final = "capacity-block"
PURCHASES: Final = (ON_DEMAND, SPOT, RESERVATION, CAPACITY_BLOCK)
_RESERVATION_ID: Final = re.compile(r"cr-(?:[0-9a-f]{8}|[0-9a-f]{17})")
TERMINATED_BEFORE: Final = timedelta(minutes=30)
"""Time before a block's end at which EC2 begins to terminate its instances (EC2 User Guide, "Capacity Blocks")."""
ULTRASERVER_TERMINATED_BEFORE: Final = timedelta(minutes=60)
"""Same for UltraServers."""
ULTRASERVERS: Final = "p6e-"
SAVE_TIME: Final = timedelta(minutes=10)
"""Time for jobs and nodes to save and end before EC2 terminates them."""


@dataclass(frozen=True, kw_only=True)
class PurchaseSettings(EfaSettings):
    """The way in which EC2 sells the nodes."""

    purchase: str = ON_DEMAND
    """``on-demand``; ``spot`` for the workers, which EC2 may take back with two minutes' notice; ``reservation`` for
    all nodes; or ``capacity-block``: all nodes start when the block starts and end shortly before it does. A change
    applies to nodes launched after the deploy."""
    capacity_reservation: str | None = None
    """On-Demand Capacity Reservation or Capacity Block that contains every node of ``instance_type``; needed with
    ``reservation`` and ``capacity-block``."""

    def check(self) -> None:
        """Check that ``purchase`` is a known value, and that a reservation is given exactly if it is used."""
        super().check()
        purchase, reservation = self.purchase, self.capacity_reservation
        if purchase not in PURCHASES and (lower := purchase.lower()) in PURCHASES:
            raise SettingsError(f"purchase must be in lower case, got {shown(purchase)}: did you mean {lower}?")
        require(purchase in PURCHASES, "purchase", purchase, " or ".join((", ".join(PURCHASES[:-1]), PURCHASES[-1])))
        is_id = reservation is None or _RESERVATION_ID.fullmatch(reservation)
        require(is_id, "capacity_reservation", reservation, "cr- and 8 or 17 hex digits")
        if (purchase in (RESERVATION, CAPACITY_BLOCK)) != (reservation is not None):
            word = CAPACITY_BLOCK if purchase == CAPACITY_BLOCK else RESERVATION
            raise SettingsError(f"purchase={word} and capacity_reservation must be set together")

    def warnings(self) -> dict[str, str]:
        """Warn if every node is needed although EC2 may take workers back."""
        warnings = super().warnings()
        if self.purchase == SPOT and self.worker_count and self.min_workers is None:
            warnings["spot-needs-all"] = (
                "purchase spot without min_workers: the deploy fails if EC2 has no spot capacity for all workers"
            )
        return warnings

    @property
    def uses_capacity_block(self) -> bool:
        """Return True if the nodes live in a Capacity Block, which has a start and an end."""
        return self.purchase == CAPACITY_BLOCK

    @property
    def uses_placement_group(self) -> bool:
        """Return True if the nodes are in a cluster placement group: never with spot or a reservation.

        A reservation outside of the group would not fit, and EC2 has the least spot capacity within one.
        """
        return super().uses_placement_group and self.purchase == ON_DEMAND


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityBlock:
    """A Capacity Block for ML, as AWS describes it."""

    block_id: str
    instance_type: str
    zone: str
    count: int
    """Number of instances in the block."""
    starts_at: datetime
    ends_at: datetime

    @property
    def pauses_at(self) -> datetime:
        """Return the time at which the nodes must end, so that jobs save before EC2 terminates them."""
        is_ultraserver = self.instance_type.startswith(ULTRASERVERS)
        return self.ends_at - SAVE_TIME - (ULTRASERVER_TERMINATED_BEFORE if is_ultraserver else TERMINATED_BEFORE)


def parse_capacity_block(block_id: str, description: dict[str, Any]) -> CapacityBlock:
    """Return the block that the CDK's lookup found. Raises SettingsError if it is not a block."""
    starts, ends = (parse_time(str(description.get(name, ""))) for name in ("StartDate", "EndDate"))
    if description.get("ReservationType", CAPACITY_BLOCK) != CAPACITY_BLOCK or starts is None or ends is None:
        raise SettingsError(f"capacity_reservation {block_id} is not a Capacity Block with a start and an end")
    return CapacityBlock(
        block_id=block_id,
        instance_type=str(description.get("InstanceType", "")),
        zone=str(description.get("AvailabilityZone", "")),
        count=int(description.get("TotalInstanceCount", 0)),
        starts_at=starts,
        ends_at=ends,
    )


def require_fit(block: CapacityBlock, props: PurchaseSettings, *, zone: str | None) -> None:
    """Raise SettingsError unless EC2 can launch every node in the block."""
    name = f"capacity_reservation {block.block_id}"
    if block.instance_type != props.instance_type:
        raise SettingsError(f"{name} is a block of {block.instance_type}, and instance_type is {props.instance_type}")
    if zone is not None and block.zone != zone:
        raise SettingsError(f"{name} is in {block.zone}, and the cluster in {zone}: set availability_zone={block.zone}")
    needed = props.node_counts.get(props.instance_type, 0)
    if needed > block.count:
        among = ", the master among them" if props.master_type == props.instance_type else ""
        raise SettingsError(f"{name} has {block.count} instances for {needed} nodes{among}: lower worker_count")
