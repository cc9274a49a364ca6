"""Files that name a process for certain: by its id together with its start time, as ids are used again."""

import os
from pathlib import Path


def _state_and_start(pid: int) -> tuple[str, str]:
    """State (proc(5): Z and X have ended, whether their parent has noticed or not) and time of start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return fields[0], fields[19]


def record_process(file: Path, pid: int | None = None) -> None:
    """Name a process, by default this one, in a file that appears complete."""
    pid = pid or os.getpid()
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(f"{pid} {_state_and_start(pid)[1]}")
    partial.rename(file)


def process_of(file: Path) -> int | None:
    """The process that a file names; None when it has ended or there is no such file."""
    try:
        pid, recorded = file.read_text().split()
        state, started = _state_and_start(int(pid))
    except (OSError, ValueError):
        return None
    return int(pid) if started == recorded and state not in "ZX" else None
