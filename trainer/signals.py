"""Turn SIGTERM, SIGHUP and Ctrl-C into an orderly end, after a checkpoint when there is something to save."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

log = logging.getLogger(__name__)

HANGUP: Final = set() if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else {signal.SIGHUP}
"""SIGHUP, unless the process ignores it, as under nohup. A terminal that closes sends it; systemd sends it right after
SIGTERM to a session that it ends (systemd.kill(5))."""
ENDING: Final = {signal.SIGTERM, signal.SIGINT} | HANGUP
AT_ONCE: Final = {signal.SIGINT}
"""As the second signal, Ctrl-C ends the process at once, because a person has sent it. Other signals often come in
pairs, from systemd or from two programs that pass the same one on."""
LAST_STEP_S: Final = 60.0
"""Longest time for the current step and its checkpoint; most senders of a signal wait less."""


def block_signals() -> None:
    """Block the signals in this thread and in all threads that it starts later, so that only Signals receives them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def unblock_signals() -> None:
    """Undo block_signals: a signal ends the process again."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


class Signals:
    """Waits for signals in its own thread; create it before other threads start, because they inherit the signal mask.

    A Python signal handler would run only after a collective operation returns: when a rank is lost, that can take the
    operation's whole timeout.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The signal that run has to stop for."""
        self._deferred = False
        self._lock = threading.Lock()
        block_signals()
        threading.Thread(target=self._wait, daemon=True, name="signals").start()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Treat a signal in this block as a request to stop; a second one, Ctrl-C, still ends the process at once."""
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
            log.warning("%s: will save a checkpoint after this step and exit; press Ctrl-C to exit now", number.name)
            signal.sigtimedwait(AT_ONCE, LAST_STEP_S)
        log.warning("ended by %s", number.name)
        os._exit(128 + number)
