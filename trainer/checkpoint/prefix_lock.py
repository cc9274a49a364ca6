"""Lock a checkpoint prefix on a machine, so that two runs do not overwrite each other's checkpoints.

The lock file names its holder. The kernel releases it when the process ends, however it ends (flock(2)). Machines that
share a directory lock it separately, because their ranks belong to the same run.
"""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainer.distributed.world import RENDEZVOUS_VARIABLES
from trainer.errors import UsageError

RETRY_S: Final = 0.05
MAX_ATTEMPTS: Final = 40
"""A process that has just taken the lock may not have written its name yet."""


def lock_prefix(prefix: str, *, run: str) -> int | None:
    """Lock the prefix for this run; return a descriptor that keeps the lock while open, or None without a lock file.

    Several processes of one run may share it. Raises UsageError if another run has it.
    """
    base = Path(prefix).expanduser()
    try:
        file = os.open(base.with_name(f".{base.name}-{os.uname().nodename}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        # For example, the disk is full, which the first checkpoint will report.
        return None
    try:
        holder = _take(file, run)
    except OSError:  # the file system does not support locks
        return file
    if holder != run:
        os.close(file)
        raise UsageError(f"--model-prefix {prefix} is in use on {os.uname().nodename} by {holder}")
    return file


def run_name(job_id: str, environment: Mapping[str, str]) -> str:
    """Return the name of this process's run: its job's ID, or the address of its rendezvous."""
    place = [environment[name] for name in RENDEZVOUS_VARIABLES if environment.get(name)]
    if job_id:
        return f"job {job_id}"
    return f"ranks at {':'.join(place)}" if place else f"process {os.getpid()}"


def _take(file: int, run: str) -> str:
    """Take the lock if it is free; return the name of the run that holds it."""
    for _ in range(MAX_ATTEMPTS):
        if _flock(file, fcntl.LOCK_EX):
            os.ftruncate(file, 0)
            os.pwrite(file, run.encode(), 0)
        if _flock(file, fcntl.LOCK_SH):
            return os.pread(file, 1000, 0).decode(errors="replace")
        time.sleep(RETRY_S)
    return "another run"


def _flock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
