"""End the process when the check takes too long: a collective operation may never return after losing a rank."""

import os
import sys
import threading
from typing import Final

LIMIT_S: Final = 50.0
"""Seconds from the rendezvous of the ranks to the end of the check."""
GRACE_S: Final = 3.0
"""Extra seconds for a rank that only waits for others, so that they can report their more informative stage first."""


class Watchdog:
    """Ends the process with one line that names the current stage, unless `stop` is called in time."""

    def __init__(self, name: str, *, limit_s: float = LIMIT_S) -> None:
        self._name = name
        self._limit_s = limit_s
        self._stage, self._waits = "the first stage", True
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def enter(self, stage: str, *, waits: bool = False) -> None:
        """Enter a stage; ``waits`` means that this rank only waits for others in it."""
        self._stage, self._waits = stage, waits

    def stop(self) -> None:
        """Stop watching, because the check is done."""
        self._stopped.set()

    def _watch(self) -> None:
        if self._stopped.wait(self._limit_s) or (self._waits and self._stopped.wait(GRACE_S)):
            return
        print(
            f"check: {self._name}: timed out after {self._limit_s:.0f} s in stage: {self._stage}",
            file=sys.stderr,
            flush=True,
        )
        # Do not use sys.exit(): the main thread is inside a collective operation.
        os._exit(1)
