"""Handle the signals that end a command."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat the terminal's hangup and SIGTERM like Ctrl-C, so that the command cleans up before it ends.

    A signal that is already ignored stays ignored, so that nohup keeps its meaning.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    caught = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in caught:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in caught.items():
            signal.signal(number, handler)
