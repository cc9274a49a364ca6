"""What ssh and the runner say on their standard error: the last of it is why a connection ended."""

import asyncio
import os

READ_SIZE = 1 << 16
KEPT = 1 << 12
"""Bytes: a line or two are shown, of whoever says how much."""


class StderrTail:
    """Reads a descriptor, which does not block, to its end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._said = b""
        self.over = asyncio.Event()
        """Set when nothing more can come."""
        asyncio.get_running_loop().add_reader(fd, self._read)

    def last(self) -> str:
        """The last line that says something; an empty one when none does."""
        return last_line(self._said)

    def stop(self) -> None:
        """Read no more."""
        if not self.over.is_set():
            asyncio.get_running_loop().remove_reader(self._fd)
            self.over.set()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._said = (self._said + data)[-KEPT:]
        if not data:
            self.stop()


def last_line(said: bytes) -> str:
    """The last line that says something; an empty one when none does."""
    lines = (line.strip() for line in said[-KEPT:].decode(errors="replace").splitlines())
    return next((line for line in reversed([*lines]) if line), "")
