"""Define the settings for how EC2 sells the nodes: on demand, as spot instances, or from a reservation."""

import re
from dataclasses import dataclass
from typing import Final

from stacks.settings.fabric import FabricSettings
from stacks.settings.values import SettingsError, require

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"
RESERVATION: Final = "reservation"
PURCHASES: Final = (ON_DEMAND, SPOT, RESERVATION)
_RESERVATION_ID: Final = re.compile(r"cr-(?:[0-9a-f]{8}|[0-9a-f]{17})")


@dataclass(frozen=True, kw_only=True)
class PurchaseSettings(FabricSettings):
    """The way in which EC2 sells the nodes."""

    purchase: str = ON_DEMAND
    """``on-demand``; ``spot`` for the workers, which EC2 may take back with two minutes' notice; or ``reservation``
    for all nodes. A change applies to nodes launched after the deploy."""
    capacity_reservation: str | None = None
    """On-Demand Capacity Reservation that holds every node of ``instance_type``; needed with ``reservation``."""

    def check(self) -> None:
        """Check the word, and that there is a reservation if and only if it is used."""
        super().check()
        purchase, reservation = self.purchase, self.capacity_reservation
        require(purchase in PURCHASES, "purchase", purchase, " or ".join((", ".join(PURCHASES[:-1]), PURCHASES[-1])))
        is_id = reservation is None or _RESERVATION_ID.fullmatch(reservation)
        require(is_id, "capacity_reservation", reservation, "cr- and 8 or 17 hex digits")
        if (purchase == RESERVATION) != (reservation is not None):
            raise SettingsError("purchase=reservation and capacity_reservation must be set together")

    def warnings(self) -> dict[str, str]:
        """Warn that every node is needed though EC2 may take workers back."""
        found = super().warnings()
        if self.purchase == SPOT and self.worker_count and self.min_workers is None:
            found["spot-needs-all"] = (
                "purchase spot without min_workers: the deploy fails if EC2 has no spot capacity for all workers"
            )
        return found

    @property
    def uses_placement_group(self) -> bool:
        """Return whether the nodes are in a cluster placement group: with neither spot nor a reservation.

        A reservation outside of the group would not fit, and EC2 has the least spot capacity within one.
        """
        return super().uses_placement_group and self.purchase == ON_DEMAND
