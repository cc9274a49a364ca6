"""Pace the calls to AWS: they must not grow with the cluster or its troubles, nor come all at once."""

import math
from collections.abc import Callable, Set
from typing import Final

STEADY_S: Final = 15.0
"""Between looks while nobody is on the way: four a minute, and every third asks EC2 too."""
EAGER_S: Final = 2.0
EAGER_FOR_S: Final = 300.0
"""An instance that has not joined by then is broken or waits for something: no reason to hurry."""


class PollInterval:
    """Eager while instances are on their way into the cluster, and for a while only."""

    def __init__(self) -> None:
        self._arriving: Set[str] = frozenset()
        self._since = 0.0

    def interval(self, arriving: Set[str], *, now: float) -> float:
        """Seconds until the next look; ``arriving`` are the instances that are no members yet."""
        if arriving != self._arriving:
            self._arriving, self._since = frozenset(arriving), now
        eager = bool(arriving) and now - self._since < EAGER_FOR_S
        return EAGER_S if eager else STEADY_S


READ_UNITS_A_SECOND: Final = 2000.0
"""What the agents together may take of the one item that has the members: two thirds of the 3,000 that DynamoDB serves
from a partition, as the same partition may have the generation, which all poll, and the records, which the master reads
(Amazon DynamoDB Developer Guide, "Designing partition keys to distribute your workload")."""
READ_UNIT_BYTES: Final = 4096
"""Of a consistent read."""
MEMBER_BYTES: Final = 240
SHORTEST_ROUND_S: Final = 1.0
"""Shorter rounds need no turns: the polls spread them enough."""


def round_s(nodes: int) -> float:
    """Return the seconds that this many agents need to read in turn; 0 if they need not wait."""
    units = math.ceil(nodes * MEMBER_BYTES / READ_UNIT_BYTES)
    needed = nodes * units / READ_UNITS_A_SECOND
    return needed if needed >= SHORTEST_ROUND_S else 0.0


class ReadTurn:
    """When one of many agents may read a membership that has changed: once a round, at a moment of its own."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._due: float | None = None
        self._read_at = -math.inf

    def wait(self, nodes: int, *, now: float) -> float:
        """Seconds until the turn to read that there is a change; 0 when it has come."""
        if self._due is None:
            length = round_s(nodes)
            self._due = max(now + length * self._chance(), self._read_at + length)
        return max(0.0, self._due - now)

    def taken(self, *, now: float) -> None:
        """The membership was read."""
        self._due, self._read_at = None, now
