"""Ends the process at once on SIGTERM or Ctrl-C, with the exit status that a shell expects."""

import logging
import os
import signal
import threading

log = logging.getLogger(__name__)


def exit_on_signals() -> None:
    """Wait for the signals in a thread of their own.

    A Python signal handler would run only after a collective operation returns: with a rank
    gone, up to its whole timeout. To be called before other threads start: they inherit the mask.
    """
    ending = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    threading.Thread(target=_exit_on, args=(ending,), daemon=True, name="signals").start()


def _exit_on(ending: set[signal.Signals]) -> None:
    number = signal.sigwait(ending)
    log.warning("ended by %s", signal.Signals(number).name)
    os._exit(128 + number)
