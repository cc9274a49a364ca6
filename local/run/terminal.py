"""Lend the user's terminal to a command inside a local AWS."""

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterator


@contextlib.contextmanager
def sigint_ignored() -> Iterator[None]:
    """Ignore SIGINT here and in nsenter, so that both wait for a command that handles Ctrl-C itself."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def terminal_restored() -> Iterator[None]:
    """Restore the terminal's settings and its foreground process group.

    A shell inside cannot restore it, because our process group has no number in its process namespace. A program that
    is killed with its sandbox, such as an editor, leaves the terminal in any state.
    """
    terminal = sys.stdin.fileno()
    if not os.isatty(terminal):
        yield
        return
    settings, group = termios.tcgetattr(terminal), os.tcgetpgrp(terminal)
    try:
        yield
    finally:
        # A background process that changes the terminal is stopped by SIGTTOU unless it ignores the signal.
        previous = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
            os.tcsetpgrp(terminal, group)
            termios.tcsetattr(terminal, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGTTOU, previous)
