"""One training at a time for each prefix on a machine: two would replace each other's checkpoints and results.

The file names who has it; the kernel lets go of it with the process, however that ends (flock(2)). A directory that
machines share is claimed on each of them by itself: they keep the checkpoints of the same training.
"""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainer.errors import UsageError
from trainer.ranks import RENDEZVOUS_VARIABLES

RETRY_S: Final = 0.05
RETRIES: Final = 40
"""For two seconds: who has just claimed it may not have said who it is."""


def claim(prefix: str, *, training: str) -> int | None:
    """Return a descriptor that holds the prefix for this training as long as it is open; None where none can be held.

    Several processes of one training may hold it. Raises UsageError when another training does.
    """
    base = Path(prefix).expanduser()
    try:
        file = os.open(base.with_name(f".{base.name}-{os.uname().nodename}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        # A disk that is full, say: what cannot be kept is said elsewhere.
        return None
    try:
        holder = _hold(file, training)
    except OSError:  # a file system without locks
        return file
    if holder != training:
        os.close(file)
        raise UsageError(
            f"--model-prefix must be no other training's that runs on {os.uname().nodename}, got {prefix} of {holder}"
        )
    return file


def training_of(job: str, environment: Mapping[str, str]) -> str:
    """Name the training that this process is a part of: by its job, or by where its ranks meet."""
    place = [environment[name] for name in RENDEZVOUS_VARIABLES if environment.get(name)]
    if job:
        return f"job {job}"
    return f"ranks at {':'.join(place)}" if place else f"process {os.getpid()}"


def _hold(file: int, training: str) -> str:
    """Return who holds the file: this training, or the one that has it."""
    for _ in range(RETRIES):
        if _lock(file, fcntl.LOCK_EX):
            os.ftruncate(file, 0)
            os.pwrite(file, training.encode(), 0)
        if _lock(file, fcntl.LOCK_SH):
            return os.pread(file, 1000, 0).decode(errors="replace")
        time.sleep(RETRY_S)
    return "another training"


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
