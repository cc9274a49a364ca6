"""Run EC2's instance status checks: an instance that hangs fails them, and its Auto Scaling group replaces it.

"Status checks for Amazon EC2 instances" (Amazon EC2 User Guide): they run every minute. "Health checks for instances
in an Auto Scaling group": a group waits for some minutes of failed checks before it acts.
"""

import time
from collections.abc import Callable
from typing import Final

IMPAIRED_S: Final = 120.0


class StatusChecks:
    """Tracks how long each instance has hung."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._hangs_since: dict[str, float] = {}
        self._reported: set[str] = set()

    def newly_failed(self, instance_id: str, *, hangs: bool) -> bool:
        """Return True, once per hang, if an instance has hung too long; called in each pass."""
        if not hangs:
            self.forget(instance_id)
            return False
        now = self._monotonic()
        hung_s = now - self._hangs_since.setdefault(instance_id, now)
        if hung_s < IMPAIRED_S or instance_id in self._reported:
            return False
        self._reported.add(instance_id)
        return True

    def forget(self, instance_id: str) -> None:
        """Forget an instance that no longer hangs or is gone."""
        self._hangs_since.pop(instance_id, None)
        self._reported.discard(instance_id)
