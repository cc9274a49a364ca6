"""Turn SIGTERM, SIGHUP and Ctrl-C into an orderly stop, with a checkpoint if there is something to save."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

log = logging.getLogger(__name__)

HANGUP: Final = set() if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else {signal.SIGHUP}
"""SIGHUP, unless the process ignores it, as under nohup. A closing terminal sends it, and systemd right after SIGTERM
when it ends a session (systemd.kill(5))."""
ENDING: Final = {signal.SIGTERM, signal.SIGINT} | HANGUP
END_AT_ONCE_IF_REPEATED: Final = {signal.SIGINT}
"""Signals that end the process immediately when repeated: only Ctrl-C, because a person sent it. Other signals often
come in pairs, from systemd or from two programs that forward the same one."""
LAST_STEP_S: Final = 60.0
"""Longest time for the current step and its checkpoint, in seconds; most senders of a signal wait less."""


def block_signals() -> None:
    """Block the signals in this thread and in threads that it starts later, so that only Signals receives them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def unblock_signals() -> None:
    """Undo block_signals: a signal ends the process again."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


class Signals:
    """Receives signals in a thread; create it before other threads start, because they inherit the signal mask.

    A Python signal handler would run only after a collective operation returns, which takes up to its timeout when a
    rank is lost.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The signal that asked the run to stop."""
        self._stops_gracefully = False
        self._lock = threading.Lock()
        block_signals()
        threading.Thread(target=self._wait, daemon=True, name="signals").start()

    @contextmanager
    def graceful_stop(self) -> Iterator[None]:
        """In this block, treat a signal as a request to stop; a second Ctrl-C still ends the process immediately."""
        with self._lock:
            self._stops_gracefully = True
        try:
            yield
        finally:
            with self._lock:
                self._stops_gracefully = False

    def _wait(self) -> None:
        number = signal.Signals(signal.sigwait(ENDING))
        with self._lock:
            if self._stops_gracefully:
                self.received = number
        if self.received is not None:
            log.warning("%s: will save a checkpoint after this step and exit; press Ctrl-C to exit now", number.name)
            signal.sigtimedwait(END_AT_ONCE_IF_REPEATED, LAST_STEP_S)
        log.warning("ended by %s", number.name)
        os._exit(128 + number)
