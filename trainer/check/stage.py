"""End the process when the check takes too long: a collective operation may wait for a lost rank for ever."""

import os
import sys
import threading
from typing import Final

LIMIT_S: Final = 50.0
"""Seconds from the meeting of the ranks to the end of the check."""
GRACE_S: Final = 3.0
"""Seconds that a rank which only waits for others leaves to them: their stage says more."""


class StageLimit:
    """Ends the process with one line that names the current stage, unless `stop` is called in time."""

    def __init__(self, name: str, *, limit_s: float = LIMIT_S) -> None:
        self._name = name
        self._limit_s = limit_s
        self._stage, self._waits = "the first stage", True
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def enter(self, stage: str, *, waits: bool = False) -> None:
        """Begin a stage; with `waits` this rank only waits for others in it."""
        self._stage, self._waits = stage, waits

    def stop(self) -> None:
        """End the watch: the check is done."""
        self._stopped.set()

    def _watch(self) -> None:
        if self._stopped.wait(self._limit_s) or (self._waits and self._stopped.wait(GRACE_S)):
            return
        print(f"check: {self._name}: not done in {self._limit_s:.0f} s, in {self._stage}", file=sys.stderr, flush=True)
        # Not sys.exit(): the main thread is inside a collective operation.
        os._exit(1)
