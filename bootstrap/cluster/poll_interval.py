"""Limit the rate of the coordinator's calls to AWS, which must not grow with the cluster or its failures."""

from collections.abc import Set
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
