"""Log the duration of each phase until the node is ready, and record when the agent first started."""

import logging
from collections.abc import Callable
from pathlib import Path

from bootstrap.atomic_file import write_file
from bootstrap.files.paths import run_file

log = logging.getLogger(__name__)


class Phases:
    """Logs each phase once; a phase starts when the previous one ends."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = self._started_at = monotonic()
        self._done: set[str] = set()

    def log_end(self, name: str) -> None:
        """Log the end of a phase; later calls with the same name do nothing."""
        if name in self._done:
            return
        now = self._monotonic()
        log.info("phase %s took %.2f s, %.2f s since the start", name, now - self._last, now - self._started_at)
        self._done.add(name)
        self._last = now


def ensure_first_start_time(root: Path, *, now: float) -> float:
    """Return when the agent first started since boot, in monotonic seconds; record it on that start.

    A restarted agent must not get a new deadline. A reboot empties /run and restarts the monotonic clock.
    """
    file = run_file(root, "agent-started")
    try:
        return min(now, float(file.read_text()))
    except (FileNotFoundError, ValueError):
        write_file(file, f"{now}\n")
        return now
