"""Determine from the directories of logs and records which jobs still run, and remove the oldest others.

The launcher and the runners share these directories (launcher.paths), so this module must import quickly in both. It is
outside launcher.job_records because that package depends on launcher.runner.
"""

import fcntl
import os
import time

from launcher.paths import LOCK_FILE

KEPT_JOBS = 20
"""Number of job directories to keep."""
GRACE_DIGITS = 9
"""Digits of the grace period in a lock file; bootstrap.jobs.rank_grace reads no more."""
STALE_S = 600.0
"""Seconds without a touch of the lock after which a launcher counts as dead; larger than clock skew and NFS caching."""


def remove_old_jobs(jobs: str, *, keep: int) -> None:
    """Remove all but the newest `keep` jobs, and never one that still runs. Names sort by time."""
    try:
        directories = [f"{jobs}/{name}" for name in sorted(os.listdir(jobs))[:-keep]]
        for directory in directories:
            if not (is_running(directory) or lock_is_fresh(directory)):
                _remove(directory)
    except OSError:
        return


def _remove(directory: str) -> None:
    # shutil.rmtree is slow to import, and every start from the twenty-first job on removes a directory.
    for parent, below, names in os.walk(directory, topdown=False):
        for name in (*names, *below):
            _unlink(f"{parent}/{name}")
    _unlink(directory)


def _unlink(path: str) -> None:
    """Remove a file, a link or an empty directory; ignore errors."""
    try:
        is_directory = os.path.isdir(path) and not os.path.islink(path)
        (os.rmdir if is_directory else os.unlink)(path)
    except OSError:
        return


def lock_is_fresh(directory: str | os.PathLike[str]) -> bool:
    """Return True if the job's launcher touched its lock recently, for shared home directories without locks."""
    try:
        return abs(time.time() - os.stat(f"{os.fspath(directory)}/{LOCK_FILE}").st_mtime) < STALE_S
    except OSError:
        return False


def write_grace(lock: int, grace_s: float) -> None:
    """Write into a lock file that ranks have this grace period, which the agent reads (bootstrap.jobs.rank_grace)."""
    try:
        # One write of constant width replaces the whole number: a reader never sees a part of it, nor none.
        os.pwrite(lock, b"%0*d\n" % (GRACE_DIGITS, grace_s), 0)
    except OSError:
        return  # The disk is full: the node's end does not wait for the ranks.


def is_running(directory: str | os.PathLike[str]) -> bool:
    """Return True if any part of the job with this directory is running on this machine."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
