"""Follow the membership on a worker: poll its generation, and read it when the generation has changed."""

import logging
import math
from collections.abc import Callable
from typing import Final

from bootstrap.cluster.membership import Membership
from bootstrap.cluster.record_validation import RecordError
from bootstrap.cluster.table import Table

log = logging.getLogger(__name__)

READ_UNITS_PER_SECOND: Final = 2000.0
"""Read units per second that all agents together may use for the item with the members: two thirds of the 3,000 that
DynamoDB serves per partition. The same partition may hold the generation, which all nodes poll, and the records,
which the master reads (Amazon DynamoDB Developer Guide, "Designing partition keys to distribute your workload")."""
READ_UNIT_BYTES: Final = 4096
"""Size in bytes of a consistent read that takes one read unit."""
MEMBER_BYTES: Final = 240
"""Bytes of one member in the item."""
MIN_ROUND_S: Final = 1.0
"""Shortest round in seconds in which agents take turns; in a shorter one, their polls are spread enough anyway."""


def read_round_seconds(nodes: int) -> float:
    """Return the seconds that this many agents need to read in turn; 0 if they need not take turns."""
    units = math.ceil(nodes * MEMBER_BYTES / READ_UNIT_BYTES)
    needed = nodes * units / READ_UNITS_PER_SECOND
    return needed if needed >= MIN_ROUND_S else 0.0


class ReadSlot:
    """An agent's slot for reading a changed membership: one per round, at a random moment."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._due: float | None = None
        self._read_at = -math.inf

    def seconds_until_read(self, nodes: int, *, now: float) -> float:
        """Return the seconds until this agent may read; 0 if its slot has come."""
        if self._due is None:
            length = read_round_seconds(nodes)
            self._due = max(now + length * self._random(), self._read_at + length)
        return max(0.0, self._due - now)

    def record_read(self, *, now: float) -> None:
        """Note that the membership was read."""
        self._due, self._read_at = None, now


class Follower:
    """Reads the membership; keeps the last good one while the table's records are bad."""

    def __init__(self, table: Table, *, read_slot: ReadSlot, monotonic: Callable[[], float]) -> None:
        self._table = table
        self._read_slot = read_slot
        self._monotonic = monotonic
        self.seconds_until_read = 0.0
        """Seconds until this node may read a change, which all nodes notice simultaneously, so they take turns."""
        self.error: str | None = None
        """Reason why the table's records cannot be used, or None. The master rewrites bad records."""

    def read(self, known: Membership) -> Membership:
        """Return the current membership, or ``known`` if there is no newer one to read."""
        last, self.error = self.error, None
        self.seconds_until_read = 0.0
        try:
            return known if self._generation() == known.generation else self._read_in_slot(known)
        except RecordError as error:
            self.error = f"membership record: {error}"
            return known
        finally:
            if self.error and self.error != last:
                log.warning("keeping the last good membership: %s", self.error)

    def _read_in_slot(self, known: Membership) -> Membership:
        now = self._monotonic()
        self.seconds_until_read = self._read_slot.seconds_until_read(known.desired_nodes, now=now)
        if self.seconds_until_read > 0:
            return known
        membership = self._table.read_membership()
        self._read_slot.record_read(now=now)
        return membership

    def _generation(self) -> int | None:
        """Return the generation; None if its record is bad, because the membership may still be good."""
        try:
            return self._table.read_generation()
        except RecordError as error:
            self.error = f"generation record: {error}"
            return None
