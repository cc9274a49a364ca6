"""Run a command on its own terminal; the test types and reads."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"


class Terminal:
    """Runs a command as the leader of a session on a terminal of 200 columns."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str] = os.environ,
        kind: str = "dumb",
    ) -> None:
        self.shown = ""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
            os.chdir(directory)
            os.execvpe(command[0], list(command), {**environment, "TERM": kind})

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def expect(self, pattern: str, *, timeout_s: float = 120) -> re.Match[str]:
        """Read until a pattern appears, and discard everything up to its end."""
        deadline = time.monotonic() + timeout_s
        while (found := re.search(pattern, self.shown)) is None:
            ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"waited {timeout_s} s for {pattern!r}, shown: {self.shown}"
            self.shown += self._read(pattern)
        self.shown = self.shown[found.end() :]
        return found

    def _read(self, pattern: str) -> str:
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # every process has closed it
            data = b""
        assert data, f"the terminal has closed before {pattern!r} showed: {self.shown}"
        return data.decode(errors="replace").replace("\r", "")

    @property
    def modes(self) -> list[Any]:
        """Return the terminal's settings: echo, line editing, the keys for signals."""
        return termios.tcgetattr(self._terminal)

    def foreground_is_leader(self) -> bool:
        """Return True if the session leader's process group is in the foreground."""
        return os.tcgetpgrp(self._terminal) == self.pid

    def wait_for_end(self) -> int:
        """Return the command's exit code, 128 + n after signal n."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def kill(self, signum: signal.Signals) -> None:
        os.kill(self.pid, signum)

    def close(self) -> None:
        """Close the terminal, which sends SIGHUP to its session."""
        os.close(self._terminal)
