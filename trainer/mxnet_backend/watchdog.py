"""End a process that waits too long for the other ranks, because its libraries would never stop waiting.

Neither ps-lite nor MXNet's threads accept a timeout, and a Python exception would end in MXNet's exit barrier, which
waits for all ranks. So the process ends immediately, and the launcher ends the other ranks.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from trainer.timeouts import RENDEZVOUS_TIMEOUT_S, STEP_TIMEOUT_S

log = logging.getLogger(__name__)

POLL_S: Final = 0.5


class Wait(NamedTuple):
    """A wait for other ranks, in progress."""

    deadline: float
    """Time on the watchdog's clock at which the wait has lasted too long."""
    timeout_s: float
    """Longest duration of the wait, for the message."""
    action: str


def _exit_with(message: str) -> None:
    log.critical("trainer: %s", message)
    os._exit(1)


class Watchdog:
    """Watches one wait at a time in a separate thread, because the waiting thread is deep in C++."""

    def __init__(
        self,
        *,
        end: Callable[[str], None] = _exit_with,
        rendezvous_timeout_s: float = RENDEZVOUS_TIMEOUT_S,
        step_timeout_s: float = STEP_TIMEOUT_S,
        poll_s: float = POLL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._end = end
        self._timeout_s = rendezvous_timeout_s
        self._step_timeout_s = step_timeout_s
        self._poll_s = poll_s
        self._clock = clock
        self._wait: Wait | None = None
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    @contextmanager
    def waiting(self, action: str, *, more_s: float = 0.0) -> Iterator[None]:
        """End the process if this block waits for other ranks longer than the timeout.

        ``more_s`` is how many seconds they may be behind this rank; it extends the timeout.
        """
        timeout_s = self._timeout_s + more_s
        outer, self._wait = self._wait, Wait(self._clock() + timeout_s, timeout_s, action)
        try:
            yield
        finally:
            self._wait = outer

    def use_step_timeout(self) -> None:
        """Use the step timeout from now on; call it once all ranks have made a step."""
        self._timeout_s = self._step_timeout_s

    def set_timeout(self, seconds: float) -> None:
        """Let the other ranks be silent for this long from now on."""
        self._timeout_s = seconds

    def _watch(self) -> None:
        while True:
            time.sleep(self._poll_s)
            if (wait := self._wait) is not None and self._clock() > wait.deadline:
                self._end(f"{wait.action} failed: another rank ended, or was silent for {wait.timeout_s:.0f} s")
                return
