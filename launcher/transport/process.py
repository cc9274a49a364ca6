"""Run a program with a pipe for each standard stream, or adopt a program that an earlier launch left running."""

import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

KILL = signal.SIGKILL
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; child processes would inherit that."""


class PipedProcess:
    """A program's pipes, and the descriptor that reports its end (pidfd_open(2))."""

    def __init__(self, fds: Sequence[int], *, pid: int | None = None) -> None:
        """Take standard input, output and error, in this order, and the pidfd; `close` closes them all."""
        stdin, stdout, self.stderr_fd, self._pidfd = self.fds = tuple(fds)
        self.stdin, self.stdout = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0)
        self._pid = pid
        """Process id of a child of this process, which must be reaped."""
        self._is_open = True
        self.returncode: int | None = None
        """Minus the signal's number after a signal; always 0 for a process that is not our child."""
        os.set_blocking(self.stderr_fd, False)

    @classmethod
    def start(cls, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> "PipedProcess":
        """Run a program in its own session; `environment` replaces this process's. Raises OSError."""
        fds: list[int] = []
        try:
            for _ in range(3):
                fds += os.pipe()
            child_stdin, stdin, stdout, child_stdout, stderr, child_stderr = fds
            pid = os.posix_spawnp(
                command[0],
                list(command),
                os.environ if environment is None else environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, fd, number)
                    for number, fd in enumerate((child_stdin, child_stdout, child_stderr))
                ],
                # Ctrl-C in a terminal goes only to the launcher, which ends the ranks cleanly.
                setsid=True,
                setsigdef=IGNORED,
            )
        except OSError:
            _close(*fds)
            raise
        # Closing these first leaves room for the pidfd.
        _close(child_stdin, child_stdout, child_stderr)
        return cls((stdin, stdout, stderr, os.pidfd_open(pid)), pid=pid)

    def has_ended(self) -> bool:
        """Return True if the process has ended or was released; never wait."""
        if not self._is_open:
            return True
        if self.returncode is None and is_readable(self._pidfd):
            self.returncode = 0
            if self._pid is not None:
                with suppress(ChildProcessError):  # Another thread or handler reaped it.
                    self.returncode = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self.returncode is not None

    def kill(self) -> None:
        """Kill the process."""
        if not self.has_ended():
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._pidfd, KILL)

    def discard(self) -> None:
        """Kill the process and release its descriptors."""
        self.kill()
        self.close()

    async def wait(self) -> None:
        """Wait until the process has ended."""
        if self.has_ended():
            return
        # The pool takes processes before there is an event loop.
        import asyncio

        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        # Several callers may wait, and a loop takes one callback per descriptor.
        pidfd = os.dup(self._pidfd)
        loop.add_reader(pidfd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        self.has_ended()

    def close(self) -> None:
        """Close the pipes, which ends a program that reads its input."""
        # The event loop may have closed the first two already.
        self.stdin.close()
        self.stdout.close()
        if self._is_open:
            self._is_open = False
            _close(self.stderr_fd, self._pidfd)


def is_readable(fd: int) -> bool:
    """Return True if a read would not block; unlike select(2), poll(2) takes descriptors above 1023."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _close(*fds: int) -> None:
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
