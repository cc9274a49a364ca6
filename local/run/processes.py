"""Identify processes in files by id and start time, because the system reuses ids, and wait for the end of one."""

import os
import subprocess
from pathlib import Path

from local.errors import LocalError


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


def wait_for_end(process: "subprocess.Popen[bytes]", *, timeout_s: float) -> None:
    """Wait for a process that ends a local AWS. Raises LocalError if it takes too long, and leaves it at work."""
    try:
        process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise LocalError(
            f"waited {timeout_s:.0f} s for the local AWS to end; it is still shutting down in the background, and "
            "make status shows when it is gone"
        ) from error
