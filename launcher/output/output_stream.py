"""Write the launcher's own output without blocking it when a reader is slow."""

import asyncio
import errno
import os
import select
import stat
import time

CHUNK = 4096
"""PIPE_BUF of Linux (pipe(7)): number of bytes that a writable pipe accepts without blocking."""
READER_GONE = (errno.EPIPE, errno.ECONNRESET, errno.EIO)
"""Errors of a stream without a reader; a terminal after a hangup gives EIO."""


class OutputStream:
    """Output to a file descriptor in whole pieces; discards everything after an error."""

    def __init__(self, fd: int) -> None:
        self._fd = _own_description(fd)
        self._write_lock = asyncio.Lock()
        self._poller = select.poll()
        self._poller.register(self._fd, select.POLLOUT)
        self.write_error: str | None = None
        """The error that ended the stream, if any."""

    @property
    def is_terminal(self) -> bool:
        """Return True if the stream is a terminal."""
        return os.isatty(self._fd)

    async def send(self, data: bytes) -> None:
        """Write all of `data`; wait while another piece is being written."""
        view = memoryview(data)
        async with self._write_lock:
            while view and not self.write_error:
                view = view[self._write_some(view) :]
                if view and not self._poller.poll(0):
                    await self._wait_until_writable()

    def send_at_the_end(self, data: bytes, *, timeout_s: float) -> None:
        """Write `data` after everything else; give up at the deadline if the reader accepts nothing."""
        view = memoryview(data)
        until = time.monotonic() + timeout_s
        while view and not self.write_error and time.monotonic() < until:
            self._poller.poll(1000 * max(0.0, until - time.monotonic()))
            view = view[self._write_some(view) :]

    def reader_has_gone(self) -> bool:
        """Check, without writing, whether a pipe, socket or terminal has lost its reader."""
        events = dict(self._poller.poll(0)).get(self._fd, 0)
        if events & (select.POLLERR | select.POLLHUP) and not self.write_error:
            self.write_error = os.strerror(errno.EPIPE)
        return self.write_error is not None

    def _write_some(self, view: memoryview) -> int:
        if not self._poller.poll(0):
            return 0
        try:
            return os.write(self._fd, view[:CHUNK])
        except BlockingIOError:
            return 0
        except OSError as error:
            self.write_error = os.strerror(errno.EPIPE if error.errno in READER_GONE else error.errno or 0)
            return 0

    async def _wait_until_writable(self) -> None:
        loop, writable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(self._fd, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(self._fd)


def _own_description(fd: int) -> int:
    """Open the same pipe or terminal again in non-blocking mode, without affecting its other users.

    A file keeps its descriptor because of its position; so does a socket, for which poll(2) must suffice.
    """
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        return fd
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return fd  # For example another user's terminal, under su.
