"""Files that name a process for certain: by its id together with its start time, as ids are used again."""

import os
from pathlib import Path


def _start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]


def record_process(file: Path, pid: int | None = None) -> None:
    """Name a process, by default this one, in a file that appears complete."""
    pid = pid or os.getpid()
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(f"{pid} {_start_time(pid)}")
    partial.rename(file)


def process_of(file: Path) -> int | None:
    """The process that a file names; None when it has ended or there is no such file."""
    try:
        pid, started = file.read_text().split()
        return int(pid) if _start_time(int(pid)) == started else None
    except (OSError, ValueError):
        return None
