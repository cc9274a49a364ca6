"""Serve one request at a time, because moto's state is plain dictionaries without locks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock


class RequestLock:
    """Locks the state; calls ``changed`` before each release by a holder that may have changed it."""

    def __init__(self) -> None:
        self._lock = RLock()
        self.changed: Callable[[], None] = _ignore_change

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        try:
            self.changed()
        finally:
            self._lock.release()

    @contextmanager
    def without_signal(self) -> Iterator[None]:
        """Hold the lock exclusively, and signal no change on release."""
        with self._lock:
            yield


def _ignore_change() -> None:
    """Do nothing."""


LOCK = RequestLock()
"""Lock of every request and timer that reads or changes the state."""
