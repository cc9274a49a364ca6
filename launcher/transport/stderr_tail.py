"""Keep the end of the stderr of ssh and the runner, which shows why a connection ended."""

import asyncio
import os

READ_SIZE = 1 << 16
TAIL_SIZE = 1 << 12
"""Number of bytes to keep; messages show only a line or two."""


class StderrTail:
    """Last output of a non-blocking descriptor, which is read to its end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._tail = b""
        self.ended = asyncio.Event()
        """Set at the end of the stream."""
        asyncio.get_running_loop().add_reader(fd, self._read)

    def last_line(self) -> str:
        """Return the last non-blank line, or an empty one."""
        return last_line(self._tail)

    def stop(self) -> None:
        """Stop reading."""
        if not self.ended.is_set():
            asyncio.get_running_loop().remove_reader(self._fd)
            self.ended.set()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._tail = (self._tail + data)[-TAIL_SIZE:]
        if not data:
            self.stop()


def last_line(output: bytes) -> str:
    """Return the last non-blank line, or an empty one."""
    lines = (line.strip() for line in output[-TAIL_SIZE:].decode(errors="replace").splitlines())
    return next((line for line in reversed([*lines]) if line), "")
