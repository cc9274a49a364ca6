"""SIGTERM, SIGHUP and Ctrl-C: the end, after a checkpoint where there is something to keep."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

log = logging.getLogger(__name__)

# nohup has it ignored.
HANGUP: Final = set() if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else {signal.SIGHUP}
"""A terminal that was closed; systemd sends it right behind SIGTERM to a session that it ends (systemd.kill(5))."""
ENDING: Final = {signal.SIGTERM, signal.SIGINT} | HANGUP
AT_ONCE: Final = {signal.SIGINT}
"""After the first signal: a person's. Others come in pairs, from systemd as from two that pass the same one on."""
LAST_STEP_S: Final = 60.0
"""How long the step under way and the checkpoint may take. Who sent the signal mostly waits less."""


def hold() -> None:
    """Have them wait for Signals: in this thread, and in all that it starts from now on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def let_go() -> None:
    """Have them end the process, as if ``hold`` had not been called."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


class Signals:
    """Waits for the signals in a thread of its own.

    A Python signal handler would run only after a collective operation returns: with a rank
    gone, up to its whole timeout. To be made before other threads start: they inherit the mask.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The one that the training has to stop for."""
        self._deferred = False
        self._lock = threading.Lock()
        hold()
        threading.Thread(target=self._wait, daemon=True, name="signals").start()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """In this block a signal is a wish to stop; Ctrl-C after it still ends the process at once."""
        with self._lock:
            self._deferred = True
        try:
            yield
        finally:
            with self._lock:
                self._deferred = False

    def _wait(self) -> None:
        number = signal.Signals(signal.sigwait(ENDING))
        with self._lock:
            if self._deferred:
                self.received = number
        if self.received is not None:
            log.warning("%s: a checkpoint after this step, then the end; at once with Ctrl-C", number.name)
            signal.sigtimedwait(AT_ONCE, LAST_STEP_S)
        log.warning("ended by %s", number.name)
        os._exit(128 + number)
