"""Write the files of a node from which its agent sees that the node is used."""

import fcntl
import os
import pwd
from pathlib import Path

from bootstrap.idle.load import CPU_STAT, NETWORK_STAT, TERMINALS
from bootstrap.jobs.job_directories import JOBS

USER = pwd.getpwuid(os.getuid())
_HEADER = "Inter-|   Receive\n face |bytes\n"
_LOOPBACK = 10**12
"""Bytes on the loopback interface, which do not count."""


def write(root: Path, path: str, text: str) -> None:
    """Write a small file in place: a file system may take a thousand times as long to replace one."""
    file = root / path
    try:
        with file.open("r+") as opened:
            opened.truncate(opened.write(text))
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def write_counters(root: Path, *, cpu_s: float = 0.0, network: float = 0, loopback: int = _LOOPBACK) -> None:
    """Write the counters of the node's kernel; half of the bytes are received, half are sent."""
    write(root, CPU_STAT, f"usage_usec {int(cpu_s * 1e6)}\nuser_usec 1\n")
    half = int(network) // 2
    zeros = "0 0 0 0 0 0 0"
    rows = f"    lo: {loopback} {zeros} 0 {zeros}\n  ens5: {half} {zeros} {half} {zeros}\n"
    write(root, NETWORK_STAT, f"{_HEADER}{rows}")


def open_job(root: Path) -> int:
    """Create a job's directory and return it open; each process of a job holds a shared lock on it."""
    directory = root / USER.pw_dir.lstrip("/") / JOBS / "20261201-000000-abc"
    directory.mkdir(parents=True)
    return os.open(directory, os.O_RDONLY)


def lock_job(job: int, *, runs: bool) -> None:
    fcntl.flock(job, fcntl.LOCK_SH if runs else fcntl.LOCK_UN)


def touch_terminal(root: Path, name: str, *, input_at: float, output_at: float) -> None:
    """Set when a terminal was last read and written, in seconds of the wall clock."""
    terminal = root / TERMINALS / name
    try:
        os.utime(terminal, (input_at, output_at))
    except FileNotFoundError:
        write(root, f"{TERMINALS}/{name}", "")
        os.utime(terminal, (input_at, output_at))
