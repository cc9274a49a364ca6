"""Follow the membership on a worker: poll its generation, and read it when the generation has changed."""

import logging
from collections.abc import Callable

from bootstrap.cluster.membership import Membership
from bootstrap.cluster.poll_interval import ReadTurn
from bootstrap.cluster.record_fields import RecordError
from bootstrap.cluster.table import Table

log = logging.getLogger(__name__)


class Follower:
    """Reads the membership; keeps the last good one while the table's records are bad."""

    def __init__(self, table: Table, *, turn: ReadTurn, monotonic: Callable[[], float]) -> None:
        self._table = table
        self._turn = turn
        self._monotonic = monotonic
        self.seconds_until_turn = 0.0
        """Seconds until this node's turn to read a change, which all nodes noticed simultaneously."""
        self.error: str | None = None
        """Reason why the table's records cannot be used, or None. The master rewrites bad records."""

    def read(self, known: Membership) -> Membership:
        """Return the current membership, or ``known`` if there is no newer one to read."""
        last, self.error = self.error, None
        self.seconds_until_turn = 0.0
        try:
            return known if self._generation() == known.generation else self._read_in_turn(known)
        except RecordError as error:
            self.error = f"membership record: {error}"
            return known
        finally:
            if self.error and self.error != last:
                log.warning("keeping the last good membership: %s", self.error)

    def _read_in_turn(self, known: Membership) -> Membership:
        now = self._monotonic()
        self.seconds_until_turn = self._turn.seconds_until_turn(known.desired_nodes, now=now)
        if self.seconds_until_turn > 0:
            return known
        found = self._table.read_membership()
        self._turn.record_read(now=now)
        return found

    def _generation(self) -> int | None:
        """Return the generation; None if its record is bad, because the membership may still be good."""
        try:
            return self._table.read_generation()
        except RecordError as error:
            self.error = f"generation record: {error}"
            return None
