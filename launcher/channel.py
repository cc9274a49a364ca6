"""A file descriptor that takes everything, also once its reader has gone."""

import os
import select


class Channel:
    """Writes whole pieces; waits for a slow reader and swallows all once there is none."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.lost = False

    def send(self, data: bytes) -> None:
        """Write all of `data`."""
        view = memoryview(data)
        while view and not self.lost:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                # Another program may have made a shared terminal non-blocking.
                select.select([], [self._fd], [])
            except (BrokenPipeError, ConnectionResetError):
                self.lost = True

    def reader_has_gone(self) -> bool:
        """Whether a pipe, socket or terminal has nobody at its other end; asked without writing."""
        poller = select.poll()
        poller.register(self._fd, 0)
        return self.lost or bool(poller.poll(0))
