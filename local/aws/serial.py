"""One request at a time, as moto's state is plain dictionaries without locks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock


class Serial:
    """A lock; ``changed`` is called, with the lock held, whenever a holder may have changed the state."""

    def __init__(self) -> None:
        self._lock = RLock()
        self.changed: Callable[[], None] = _nobody_asks

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        try:
            self.changed()
        finally:
            self._lock.release()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold it without changing anything."""
        with self._lock:
            yield


def _nobody_asks() -> None:
    """Do nothing."""


LOCK = Serial()
"""Held by whoever reads or changes the state: a request, or the timer of a signal wait."""
