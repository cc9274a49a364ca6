"""Find the directories of jobs on this node, and which of them are locked by a running job."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

JOBS: Final = ".local/state/deeplearning/jobs"
"""Directory of the jobs in a home directory: launcher.paths.JOBS_DIR.

The launcher and every runner of a job hold a shared flock on the job's directory (launcher.job_records.lock,
launcher.runner.logs); the ``.lock`` files inside carry the grace period (bootstrap.jobs.rank_grace).
"""


def entries(directory: Path) -> "Iterator[os.DirEntry[str]]":
    """Yield a directory's entries; nothing if it does not exist."""
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except FileNotFoundError:
        return


def is_locked(entry: "os.DirEntry[str]") -> bool:
    """Return True if a process of the job runs on this machine; see launcher.job_directories.is_running."""
    try:
        fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (NotADirectoryError, FileNotFoundError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
