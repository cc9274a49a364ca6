"""Run a program of the setup with a deadline, forward its output line by line, and leave none of its group behind."""

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bootstrap.errors import SetupError

CHUNK: Final = 1 << 16
MAX_LINE: Final = 4096
"""Longest line in bytes; a longer one is split, so that output without line ends cannot fill the memory."""
POLL_S: Final = 0.5
"""Longest pause in seconds between calls of ``on_poll``, and between checks for the program's end."""
KILL_AFTER_S: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""
DRAIN_S: Final = 1.0
"""Seconds to keep reading output after the program's end, from a process that it left behind."""
MAX_REASON: Final = 200
"""Longest failure message, in characters; a signal has room for fewer."""
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Lines:
    """Splits output into printable lines, and remembers the last one that is not blank."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._rest = b""
        self.last = ""

    def feed(self, chunk: bytes) -> None:
        """Add the next bytes; a carriage return also ends a line, as in progress bars."""
        *whole, self._rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            self._add(line)
        while len(self._rest) > MAX_LINE:
            self._add(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]

    def end(self) -> None:
        """Add the unfinished last line."""
        self._add(self._rest)
        self._rest = b""

    def _add(self, line: bytes) -> None:
        text = _ESCAPE.sub("", line.decode("utf-8", "replace"))
        text = "".join(c if c.isprintable() else " " for c in text).rstrip()
        if text:
            self.last = text
            self._write_line(text)


def run_program(
    command: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    deadline: float,
    write_line: Callable[[str], None],
    on_poll: Callable[[], None],
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Run a program to its end. Raises SetupError with its last line if it fails or exceeds the deadline.

    Its remaining process group ends with it; systemd ends the rest of the service's processes.
    """
    name = Path(command[0]).name
    lines = Lines(write_line)
    try:
        process = subprocess.Popen(
            command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise SetupError(f"{name}: {error.strerror}", f"cannot start {command[0]}: {error.strerror}") from error
    assert process.stdout is not None
    with process.stdout as output:
        os.set_blocking(output.fileno(), False)
        in_time = _read_until_exit(process, output.fileno(), lines, deadline, on_poll, monotonic)
        if not in_time:
            _terminate_group(process, lines, output.fileno(), monotonic)
        _signal_group(process, signal.SIGKILL)
        _drain(output.fileno(), lines, monotonic() + DRAIN_S, monotonic)
    code = process.wait()
    lines.end()
    if not in_time:
        last = f"; its last line: {lines.last!r}" if lines.last else ""
        raise SetupError("timed out", f"{name} exceeded its deadline and was killed{last}")
    if code != 0:
        end = f"exit code {code}" if code > 0 else f"signal {-code}"
        detail = f"{name} ended with {end}, its last line is {lines.last!r}"
        raise SetupError(_ascii(_shortened(lines.last)) or end, detail, transient=code > 0)


def _read_until_exit(
    process: "subprocess.Popen[bytes]",
    descriptor: int,
    lines: Lines,
    deadline: float,
    on_poll: Callable[[], None],
    monotonic: Callable[[], float],
) -> bool:
    """Read output until the program has ended; return False at the deadline."""
    is_open = True
    while not _has_exited(process):
        left = deadline - monotonic()
        if left <= 0:
            return False
        if is_open:
            is_open = _read(descriptor, lines, wait_s=min(POLL_S, left))
        else:  # it has closed its output
            time.sleep(min(POLL_S, left))
        on_poll()
    return True


def _drain(descriptor: int, lines: Lines, until: float, monotonic: Callable[[], float]) -> None:
    """Read the remaining output; a process outside of the group may keep the output open."""
    while (left := until - monotonic()) > 0 and _read(descriptor, lines, wait_s=left):
        pass


def _read(descriptor: int, lines: Lines, *, wait_s: float) -> bool:
    """Wait for output and read it; return False once there will be no more."""
    if not select.select([descriptor], [], [], wait_s)[0]:
        return True
    chunk = os.read(descriptor, CHUNK)
    lines.feed(chunk)
    return bool(chunk)


def _terminate_group(
    process: "subprocess.Popen[bytes]", lines: Lines, descriptor: int, monotonic: Callable[[], float]
) -> None:
    """Ask the program's group to end, and give it time to do so."""
    _signal_group(process, signal.SIGTERM)
    until = monotonic() + KILL_AFTER_S
    while not _has_exited(process) and monotonic() < until:
        if not _read(descriptor, lines, wait_s=0.1):
            time.sleep(0.1)


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    """Return True if the program has ended, but do not reap it, so that its id still identifies its group."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _shortened(text: str) -> str:
    """Shorten pip's line about a missing package: the signal has room for some 37 characters (decision 008)."""
    return re.sub(r"^ERROR: No matching distribution found for ", "pip finds no ", text)


def _ascii(text: str) -> str:
    """Return the text in the characters that a failure signal accepts."""
    return text.encode("ascii", "replace").decode()[:MAX_REASON]
