"""Limit the rate of calls to AWS, which must not grow with the cluster or its failures, nor come in bursts."""

import math
from collections.abc import Callable, Set
from typing import Final

STEADY_RECONCILE_S: Final = 15.0
"""Seconds between the coordinator's passes while no instance is arriving; every third pass also calls EC2."""
EAGER_RECONCILE_S: Final = 2.0
"""Seconds between passes while instances arrive."""
EAGER_RECONCILES_FOR_S: Final = 300.0
"""Seconds of frequent passes; an instance that has not joined by then is broken or waiting for something."""


class PollInterval:
    """Polls often while instances are arriving, but only for a limited time."""

    def __init__(self) -> None:
        self.arriving: Set[str] = frozenset()
        """Instances that were not members yet at the last pass."""
        self._since = 0.0

    def interval(self, arriving: Set[str], *, now: float) -> float:
        """Return the seconds until the next pass; ``arriving`` are the instances that are not members yet."""
        if arriving != self.arriving:
            self.arriving, self._since = frozenset(arriving), now
        eager = bool(arriving) and now - self._since < EAGER_RECONCILES_FOR_S
        return EAGER_RECONCILE_S if eager else STEADY_RECONCILE_S


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


def round_s(nodes: int) -> float:
    """Return the seconds that this many agents need to read in turn; 0 if they need not take turns."""
    units = math.ceil(nodes * MEMBER_BYTES / READ_UNIT_BYTES)
    needed = nodes * units / READ_UNITS_PER_SECOND
    return needed if needed >= MIN_ROUND_S else 0.0


class ReadTurn:
    """Gives an agent its turn to read a changed membership, once per round at a random moment."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._due: float | None = None
        self._read_at = -math.inf

    def seconds_until_turn(self, nodes: int, *, now: float) -> float:
        """Return the seconds until this agent's turn; 0 if it is now."""
        if self._due is None:
            length = round_s(nodes)
            self._due = max(now + length * self._chance(), self._read_at + length)
        return max(0.0, self._due - now)

    def record_read(self, *, now: float) -> None:
        """Note that the membership was read."""
        self._due, self._read_at = None, now
