"""Interrupt a verb by signals as by Ctrl-C, so that it can end what it has started."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat the terminal's hangup and SIGTERM like Ctrl-C; under nohup, a verb outlives its terminal."""

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
