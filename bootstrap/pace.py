"""How often the coordinator asks AWS: calls must not grow with the cluster, nor with its troubles."""

from collections.abc import Set
from typing import Final

STEADY_S: Final = 15.0
"""Between looks while nobody is on the way: four a minute, and every third asks EC2 too."""
EAGER_S: Final = 2.0
EAGER_FOR_S: Final = 300.0
"""An instance that has not joined by then is broken or waits for something: no reason to hurry."""


class Pace:
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
