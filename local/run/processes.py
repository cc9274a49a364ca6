"""Identify processes, wait for their end, and end one with its parent.

A file identifies a process by its id and its start time, because the system reuses ids.
"""

import ctypes
import os
import signal
import subprocess
from pathlib import Path

from local.errors import LocalError

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl
"""prctl(2), looked up before a fork, after which another thread's lock could block the search."""


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends; for Popen's ``preexec_fn``.

    The parent is the thread that called Popen (PR_SET_PDEATHSIG, prctl(2)), so call that in a thread that lasts.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _state_and_start(pid: int) -> tuple[str, str]:
    """Return a process's state and start time (proc(5): in the states Z and X it has ended)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return fields[0], fields[19]


def record_process(file: Path, pid: int | None = None) -> None:
    """Write a process, by default this one, to a file that appears atomically."""
    pid = pid or os.getpid()
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(f"{pid} {_state_and_start(pid)[1]}")
    partial.rename(file)


def read_process(file: Path) -> int | None:
    """Return the process that a file identifies; None if it has ended or the file is missing."""
    try:
        pid, recorded = file.read_text().split()
        state, started = _state_and_start(int(pid))
    except (OSError, ValueError):
        return None
    return int(pid) if started == recorded and state not in "ZX" else None


def wait_for_exit(process: "subprocess.Popen[bytes]", *, timeout_s: float) -> None:
    """Wait for a process that ends a local AWS. Raises LocalError if it takes too long, and leaves it at work."""
    try:
        process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise LocalError(
            f"waited {timeout_s:.0f} s for the local AWS to end; it is still shutting down in the background, and "
            "make status shows when it is gone"
        ) from error
