"""Try zone after zone until one has room for the whole fleet, and all again with back-off until a time."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from bootstrap.aws.group_sizes import ClusterSizes
from cli.up.fleet import Outcome
from cli.up.placement import Placement
from cli.up.recovery import fleet_of

FIRST_PAUSE_S: Final = 30.0
LONGEST_PAUSE_S: Final = 600.0
"""Pauses between two rounds of the zones, doubled each time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """Look for room for the nodes of a cluster."""

    placement: Placement
    declared: ClusterSizes
    zones: Sequence[str]
    """Zones to try, the preferred first."""
    until: datetime | None = None
    """Time after which no zone is tried; None for one round."""

    def run(self, begun: str = "") -> Iterator[Outcome]:
        """Yield what came of each try, and end with the first that is whole or final. Raises ClusterError.

        An attempt that was begun in a zone is completed before any other.
        """
        pause, place = FIRST_PAUSE_S, begun
        order = sorted(self.zones, key=lambda zone: zone != begun)
        while True:
            for zone in order:
                yield (outcome := self._try(zone, moves=zone != place))
                place = zone
                if outcome.is_whole or outcome.is_final or (self.until is not None and self._is_over(0.0)):
                    return
            if self._is_over(pause):
                return
            print(f"dlcluster: no zone has room; trying again in {pause:.0f} s", file=sys.stderr)
            self.placement.lock.hold()
            time.sleep(pause)
            pause, order = min(2 * pause, LONGEST_PAUSE_S), list(self.zones)

    def _try(self, zone: str, *, moves: bool) -> Outcome:
        print(f"dlcluster: trying {zone}", file=sys.stderr)
        if moves:
            self.placement.move(zone)
        return fleet_of(self.placement, self.declared).start(zone)

    def _is_over(self, pause: float) -> bool:
        """Return whether a try after a pause would come too late."""
        return self.until is None or datetime.now(timezone.utc) + timedelta(seconds=pause) >= self.until


def parse_until(text: str, now: datetime) -> datetime | None:
    """Return the next time of the clock of a text like 18:00, in the zone of ``now``; None if the text is none."""
    try:
        clock = datetime.strptime(text, "%H:%M").time()
    except ValueError:
        return None
    found = datetime.combine(now.date(), clock, tzinfo=now.tzinfo)
    return found if found > now else found + timedelta(days=1)
