"""Lock a checkpoint prefix for one training run on a machine: two would replace each other's checkpoints.

The lock file names its holder, and the kernel releases it with the process, however that ends (flock(2)). Machines that
share a directory each take a lock of their own, because they store checkpoints of the same run.
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
RETRIES: Final = 40
"""For two seconds: a process that has just taken the lock may not have written its name yet."""


def lock_prefix(prefix: str, *, training: str) -> int | None:
    """Lock the prefix for this run; return a descriptor that holds the lock while it is open, or None without a file.

    Several processes of one run may hold it. Raises UsageError when another run does.
    """
    base = Path(prefix).expanduser()
    try:
        file = os.open(base.with_name(f".{base.name}-{os.uname().nodename}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        # For example a full disk, which the first checkpoint reports.
        return None
    try:
        holder = _take(file, training)
    except OSError:  # a file system without locks
        return file
    if holder != training:
        os.close(file)
        raise UsageError(f"--model-prefix {prefix} is in use on {os.uname().nodename} by {holder}")
    return file


def training_name(job: str, environment: Mapping[str, str]) -> str:
    """Name the run that this process is part of: by its job, or by the address where its ranks meet."""
    place = [environment[name] for name in RENDEZVOUS_VARIABLES if environment.get(name)]
    if job:
        return f"job {job}"
    return f"ranks at {':'.join(place)}" if place else f"process {os.getpid()}"


def _take(file: int, training: str) -> str:
    """Take the lock if it is free; return the run that holds it."""
    for _ in range(RETRIES):
        if _flock(file, fcntl.LOCK_EX):
            os.ftruncate(file, 0)
            os.pwrite(file, training.encode(), 0)
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
