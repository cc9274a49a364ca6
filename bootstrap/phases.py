"""How long each step of becoming a node took: one log line a phase, the first time it is done; and since when."""

import logging
from collections.abc import Callable
from pathlib import Path

from bootstrap.contract import NODE_STATE
from bootstrap.files.atomic_file import write_file
from bootstrap.files.node_files import place

log = logging.getLogger(__name__)


class Phases:
    """A phase lasts from the end of the one before to its own; later passes add nothing."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last = self._start = monotonic()
        self._done: set[str] = set()

    def done(self, name: str) -> None:
        """Note that the phase has come to its end."""
        if name in self._done:
            return
        now = self._monotonic()
        log.info("phase %s took %.2f s, %.2f s since the start", name, now - self._last, now - self._start)
        self._done.add(name)
        self._last = now


def first_start(root: Path, *, now: float) -> float:
    """When the agent first started since the machine came up, in monotonic seconds.

    A restarted agent must not get a new deadline. /run is empty after a reboot, when the
    monotonic clock starts anew too.
    """
    file = place(root, NODE_STATE).with_name("agent-started")
    try:
        return min(now, float(file.read_text()))
    except (FileNotFoundError, ValueError):
        write_file(file, f"{now}\n")
        return now
