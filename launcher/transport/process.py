"""A program with a pipe for each standard stream: started here, or by an earlier launch that left it running."""

import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

KILL = signal.SIGKILL
IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""By Python, and so by the programs that it starts, unless it is told otherwise."""


class Process:
    """The ends of a program's pipes, and the descriptor by which it is known to have ended (pidfd_open(2))."""

    def __init__(self, fds: Sequence[int], *, pid: int | None = None) -> None:
        """Take standard input, output and error, in this order, and the pidfd; all are closed by `close`."""
        stdin, stdout, stderr, self._pidfd = self.fds = tuple(fds)
        self.stdin, self.stdout, self.stderr = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0), stderr
        self._pid = pid
        """Of a child of this process, which must be waited for."""
        self._open = True
        self.returncode: int | None = None
        """Minus the signal's number after a signal; 0 for all ends of a process that is no child of ours."""
        os.set_blocking(self.stderr, False)

    @classmethod
    def start(cls, command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> "Process":
        """Run a program in a session of its own; `environment` replaces this process's. Raises OSError."""
        fds: list[int] = []
        try:
            for _ in range(3):
                fds += os.pipe()
            its_stdin, stdin, stdout, its_stdout, stderr, its_stderr = fds
            pid = os.posix_spawnp(
                command[0],
                list(command),
                os.environ if environment is None else environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((its_stdin, its_stdout, its_stderr))
                ],
                # Ctrl-C in a terminal is for the launcher, which ends the ranks in order.
                setsid=True,
                setsigdef=IGNORED,
            )
        except OSError:
            _close(*fds)
            raise
        # Now there is room for one more.
        _close(its_stdin, its_stdout, its_stderr)
        return cls((stdin, stdout, stderr, os.pidfd_open(pid)), pid=pid)

    def has_ended(self) -> bool:
        """Whether it has, or is no longer ours; asked without waiting."""
        if not self._open:
            return True
        if self.returncode is None and is_readable(self._pidfd):
            self.returncode = 0
            if self._pid is not None:
                with suppress(ChildProcessError):  # reaped by somebody else
                    self.returncode = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self.returncode is not None

    def kill(self) -> None:
        """End it, whatever it does."""
        if not self.has_ended():
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._pidfd, KILL)

    def discard(self) -> None:
        """End it and let go of it."""
        self.kill()
        self.close()

    async def wait(self) -> None:
        """Return when it has ended."""
        if self.has_ended():
            return
        # Who takes a process from a keeper does so before there is an event loop.
        import asyncio

        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        # Several may wait, and a loop has one callback for a descriptor.
        mine = os.dup(self._pidfd)
        loop.add_reader(mine, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(mine)
            os.close(mine)
        self.has_ended()

    def close(self) -> None:
        """Let go of the pipes, by which a program that heeds its input ends."""
        # Who reads and writes the first two may have closed them.
        self.stdin.close()
        self.stdout.close()
        if self._open:
            self._open = False
            _close(self.stderr, self._pidfd)


def is_readable(fd: int) -> bool:
    """Whether something can be read, or an end be seen; for numbers too that select(2) cannot take."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(0))


def _close(*fds: int) -> None:
    for fd in fds:
        with suppress(OSError):
            os.close(fd)
