"""Follow the membership on a node that does not coordinate: ask for its generation, read it when that has changed."""

import logging
from collections.abc import Callable

from bootstrap.cluster.membership import Membership
from bootstrap.cluster.poll_interval import ReadTurn
from bootstrap.cluster.record_fields import RecordError
from bootstrap.cluster.table import Table

log = logging.getLogger(__name__)


class Follower:
    """Read the membership, and stay with the last good one while the table holds something else."""

    def __init__(self, table: Table, *, turn: ReadTurn, monotonic: Callable[[], float]) -> None:
        self._table = table
        self._turn = turn
        self._monotonic = monotonic
        self.turn_in = 0.0
        """Seconds until this node may read a change that all nodes have heard of at once."""
        self.flaw: str | None = None
        """Why the table's records cannot be used now; the master mends them."""

    def read(self, known: Membership) -> Membership:
        """The membership now, or the one that is known already."""
        last, self.flaw = self.flaw, None
        self.turn_in = 0.0
        try:
            return known if self._generation() == known.generation else self._read_in_turn(known)
        except RecordError as error:
            self.flaw = f"membership record: {error}"
            return known
        finally:
            if self.flaw and self.flaw != last:
                log.warning("keeping the last good membership: %s", self.flaw)

    def _read_in_turn(self, known: Membership) -> Membership:
        now = self._monotonic()
        self.turn_in = self._turn.wait(known.desired_nodes, now=now)
        if self.turn_in > 0:
            return known
        found = self._table.read_membership()
        self._turn.taken(now=now)
        return found

    def _generation(self) -> int | None:
        """None where the record is bad: the membership itself may be right."""
        try:
            return self._table.read_generation()
        except RecordError as error:
            self.flaw = f"generation record: {error}"
            return None
