"""Ends a process that waits for the other ranks in vain, for engines that would wait for ever.

Neither ps-lite nor MXNet's threads can be told to give up, and a Python exception would end in MXNet's
exit barrier, where all ranks meet. So the process ends at once, and the launcher ends the others.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from trainer.engines.patience import MEETING_S, RANKS_S

log = logging.getLogger(__name__)

POLL_S: Final = 0.5


def _end_with(message: str) -> None:
    log.critical("trainer: %s", message)
    os._exit(1)


class Watchdog:
    """Watches one waiting at a time; a thread of its own, as the waiting one is deep in C++."""

    def __init__(
        self,
        *,
        end: Callable[[str], None] = _end_with,
        meeting_s: float = MEETING_S,
        ranks_s: float = RANKS_S,
        poll_s: float = POLL_S,
    ) -> None:
        self._end = end
        self._seconds = meeting_s
        self._ranks_s = ranks_s
        self._poll_s = poll_s
        self._waiting: tuple[float, float, str] | None = None
        """Until when, how long in all, and for what."""
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    @contextmanager
    def waiting(self, action: str, *, more_s: float = 0.0) -> Iterator[None]:
        """The block waits for other ranks; the process does not outlive it for longer than they may take.

        ``more_s`` is what they may be behind this rank by right, in seconds.
        """
        seconds = self._seconds + more_s
        outer, self._waiting = self._waiting, (time.monotonic() + seconds, seconds, action)
        try:
            yield
        finally:
            self._waiting = outer

    def expect_steps(self) -> None:
        """All ranks have made a step: from now on none has a reason to be slow."""
        self._seconds = self._ranks_s

    def expect_pause(self, seconds: float) -> None:
        """Let the other ranks be silent for so long from now on."""
        self._seconds = seconds

    def _watch(self) -> None:
        while True:
            time.sleep(self._poll_s)
            if (waiting := self._waiting) is None:
                continue
            until, seconds, action = waiting
            if time.monotonic() > until:
                self._end(f"{action} failed, another rank ended or was not heard from for {seconds:.0f} s")
                return
