"""Limit the rate of the coordinator's calls to AWS, which must not grow with the cluster or its failures."""

from collections.abc import Set
from typing import Final

RECONCILE_INTERVAL_S: Final = 15.0
"""Seconds between reconciliations while no instance is arriving; every third one also calls EC2."""
FAST_RECONCILE_INTERVAL_S: Final = 2.0
"""Seconds between reconciliations while instances arrive."""
FAST_RECONCILE_WINDOW_S: Final = 300.0
"""Seconds of frequent reconciliations; an instance that has not joined by then is broken or waiting for something."""


class PollInterval:
    """Polls often while instances are arriving, but only for a limited time."""

    def __init__(self) -> None:
        self._arriving: Set[str] = frozenset()
        self._since = 0.0

    def interval(self, arriving: Set[str], *, now: float) -> float:
        """Return the seconds until the next reconciliation; ``arriving`` are the instances that are not members yet."""
        if arriving != self._arriving:
            self._arriving, self._since = frozenset(arriving), now
        is_fast = bool(arriving) and now - self._since < FAST_RECONCILE_WINDOW_S
        return FAST_RECONCILE_INTERVAL_S if is_fast else RECONCILE_INTERVAL_S
