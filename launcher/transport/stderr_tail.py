"""Keep the end of what ssh and the runner write to standard error: it says why a connection ended."""

import asyncio
import os

READ_SIZE = 1 << 16
KEPT = 1 << 12
"""How many bytes are kept; messages show only a line or two."""


class StderrTail:
    """Read a non-blocking descriptor to its end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._said = b""
        self.over = asyncio.Event()
        """Set when nothing more can come."""
        asyncio.get_running_loop().add_reader(fd, self._read)

    def last(self) -> str:
        """Return the last line with text in it, or an empty one."""
        return last_line(self._said)

    def stop(self) -> None:
        """Stop reading."""
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
    """Return the last line with text in it, or an empty one."""
    lines = (line.strip() for line in said[-KEPT:].decode(errors="replace").splitlines())
    return next((line for line in reversed([*lines]) if line), "")
