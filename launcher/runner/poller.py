"""Waits for many descriptors at once, and calls for each what is to be called. What selectors does, which is slow to
import.
"""

import select
from _collections_abc import Callable  # collections takes long to import


class Poller:
    """The descriptors that are waited for."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._callbacks

    def add(self, fd: int, callback: Callable[[], None], *, events: int = select.POLLIN) -> None:
        """Call `callback` whenever `fd` can be read, or whatever `events` says, or its other end is gone."""
        self._callbacks[fd] = callback
        self._poller.register(fd, events)

    def remove(self, fd: int) -> None:
        """No more."""
        del self._callbacks[fd]
        self._poller.unregister(fd)

    def wait(self, seconds: float) -> None:
        """Call what is to be called, as soon as there is something, or when the time is over."""
        for fd, _ in self._poller.poll(1000 * seconds):
            # The one before may have removed it.
            if callback := self._callbacks.get(fd):
                callback()
