"""Try one zone after another until one has capacity for the complete fleet; repeat with back-off until a given time."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from bootstrap.aws.group_sizes import ClusterSizes
from cli.errors import UsageError
from cli.up.fleet import Fleet, ZoneOutcome
from cli.up.zone_deployer import ZoneDeployer

FIRST_BACKOFF_S: Final = 30.0
MAX_BACKOFF_S: Final = 600.0
"""Longest back-off between rounds of the zones; it doubles each time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneSearch:
    """Search for a zone with capacity for a cluster's nodes, round after round."""

    deployer: ZoneDeployer
    declared: ClusterSizes
    zones: Sequence[str]
    """Zones to try, preferred ones first."""
    until: datetime | None = None
    """Time after which no zone is tried; None for a single round."""

    def run(self, resume_zone: str = "") -> Iterator[ZoneOutcome]:
        """Yield the outcome of each attempt, ending with the first complete or final one. Raises ClusterError.

        An attempt that an earlier run began in ``resume_zone`` is completed first.
        """
        backoff_s, current = FIRST_BACKOFF_S, resume_zone
        order = sorted(self.zones, key=lambda zone: zone != resume_zone)
        while True:
            for zone in order:
                yield (outcome := self._try(zone, moves=zone != current))
                current = zone
                if outcome.is_complete or outcome.is_final or self._has_ended():
                    return
            if self.until is None or self._has_ended(after_s=backoff_s):
                return
            print(f"dlcluster: no zone has capacity; trying again in {backoff_s:.0f} s", file=sys.stderr)
            self.deployer.lock.acquire_or_renew()
            time.sleep(backoff_s)
            if self._has_ended():  # the machine may have slept for longer
                return
            backoff_s, order = min(2 * backoff_s, MAX_BACKOFF_S), list(self.zones)

    def _try(self, zone: str, *, moves: bool) -> ZoneOutcome:
        print(f"dlcluster: trying {zone}", file=sys.stderr)
        if moves:
            self.deployer.move(zone)
        return Fleet.of_stack(self.deployer, self.declared).start(zone)

    def _has_ended(self, *, after_s: float = 0.0) -> bool:
        """Return True if an attempt that begins in this many seconds would begin after ``until``."""
        return self.until is not None and datetime.now(timezone.utc) + timedelta(seconds=after_s) >= self.until


def parse_until(text: str, now: datetime) -> datetime | None:
    """Return the next time that a text like 18:00 denotes, in the zone of ``now``; None if the text is invalid."""
    try:
        clock = datetime.strptime(text, "%H:%M").time()
    except ValueError:
        return None
    end = datetime.combine(now.date(), clock, tzinfo=now.tzinfo)
    return end if end > now else end + timedelta(days=1)


def search_end(until: str) -> datetime | None:
    """Return the time until which to search; None for a single round. Raises UsageError."""
    end = parse_until(until, datetime.now().astimezone()) if until else None
    if until and end is None:
        raise UsageError(f"--until must be a time of the day like 18:00, got {until[:60]!r}")
    return end
