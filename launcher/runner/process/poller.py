"""Wait for many descriptors at once, as selectors does, which is slow to import."""

import select
from _collections_abc import Callable  # importing collections is slow


class Poller:
    """Descriptors, each with the function to call when it is ready."""

    def __init__(self) -> None:
        self._poller = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}

    def __contains__(self, fd: int) -> bool:
        return fd in self._callbacks

    def add(self, fd: int, callback: Callable[[], None], *, events: int = select.POLLIN) -> None:
        """Call `callback` whenever `fd` is ready for `events`, or its peer has closed."""
        self._callbacks[fd] = callback
        self._poller.register(fd, events)

    def remove(self, fd: int) -> None:
        """Stop watching a descriptor."""
        del self._callbacks[fd]
        self._poller.unregister(fd)

    def wait(self, seconds: float) -> None:
        """Call the callbacks of ready descriptors; return after `seconds` at the latest."""
        for fd, _ in self._poller.poll(1000 * seconds):
            # An earlier callback may have removed it.
            if callback := self._callbacks.get(fd):
                callback()
