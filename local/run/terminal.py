"""The user's terminal, lent to what runs inside a local AWS."""

import contextlib
import os
import signal
import sys
import termios
from collections.abc import Iterator


@contextlib.contextmanager
def terminal_restored() -> Iterator[None]:
    """Give the terminal back as it was: its settings and the process group that it serves.

    A shell inside cannot give it back itself: our process group has no number in its process namespace. And what is
    killed with its sandbox, an editor say, leaves it in any state.
    """
    terminal = sys.stdin.fileno()
    if not os.isatty(terminal):
        yield
        return
    settings, group = termios.tcgetattr(terminal), os.tcgetpgrp(terminal)
    try:
        yield
    finally:
        # Whoever changes a terminal that does not serve it is stopped by SIGTTOU, unless it ignores that.
        previous = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError, termios.error):  # the terminal is gone
            os.tcsetpgrp(terminal, group)
            termios.tcsetattr(terminal, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGTTOU, previous)
