"""Lock the queue, so that no two jobs get the same free nodes: each selects and allocates nodes under this lock."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from launcher.errors import LaunchError

LOCK = "line.lock"
"""Name of the lock file, which launchers of earlier releases use too.

The file is beside the directory of jobs, because that directory is cleaned of old entries.
"""
LOCK_TIMEOUT_S = 60.0
"""Timeout for acquiring the lock, in seconds; its holder writes only one record."""
POLL_S = 0.05


@asynccontextmanager
async def locked_queue(jobs_dir: Path) -> AsyncIterator[None]:
    """Lock the queue of the jobs in this directory. Raises LaunchError at the deadline."""
    path = jobs_dir.with_name(LOCK)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        # Nothing can be written here, not even a record, so this job is in no queue.
        yield
        return
    try:
        await _acquire(lock, path)
        yield
    finally:
        os.close(lock)


async def _acquire(lock: int, path: Path) -> None:
    clock = asyncio.get_running_loop().time
    until = clock() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if clock() > until:
                raise LaunchError(f"{path}: another launch holds it for more than {LOCK_TIMEOUT_S:g} s") from None
        except OSError:
            return  # The file system does not support locks.
        await asyncio.sleep(POLL_S)
