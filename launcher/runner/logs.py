"""Keep the output of every process of a job on its node: one file a process, one directory a job.

Only the last jobs are kept, and only the end of each output: logs must not fill a disk. A log that cannot be
written is no reason to end a job.
"""

import fcntl
import os
import time

from launcher.paths import JOBS_DIR, LOCK_FILE, log_name
from launcher.runner.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.spec import ProcessSpec

KEPT_JOBS = 20
LONGEST_LOG = 16 << 20
"""Size in bytes at which a log is rotated; the part before is kept too."""
STALE_S = 600.0
"""A launcher whose lock was not touched for this long is gone: clocks differ and file servers cache less."""


class JobLogs:
    """Hold the directory of one job; it is not cleared away while this process exists."""

    def __init__(self, home: str | os.PathLike[str], job_id: str) -> None:
        jobs = f"{os.fspath(home)}/{JOBS_DIR}"
        self.directory = f"{jobs}/{job_id}"
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._lock = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        clear_away(jobs, keep=KEPT_JOBS)

    def open(self, process: "ProcessSpec") -> "ProcessLog":
        """Begin the log of a process."""
        return ProcessLog(f"{self.directory}/{log_name(process.name)}")


class ProcessLog:
    """Log one process's output, both streams in order of arrival; a restarted job's log continues."""

    def __init__(self, path: str) -> None:
        self._path = path
        fd = self._open()
        self._fd: int | None = fd
        self._size = os.fstat(fd).st_size

    def write(self, data: bytes) -> None:
        """Write `data`; write nothing more once the disk is full."""
        if self._fd is None:
            return
        try:
            if self._size + len(data) > LONGEST_LOG:
                self._begin_anew(self._fd)
            self._size += os.write(self._fd, data)
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the log."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _begin_anew(self, fd: int) -> None:
        os.replace(self._path, f"{self._path}.1")
        anew = self._open()
        os.dup2(anew, fd, inheritable=False)
        os.close(anew)
        self._size = 0


def clear_away(jobs: str, *, keep: int) -> None:
    """Remove all but the newest `keep` jobs, and never one that still runs. Names sort by time."""
    try:
        old = [f"{jobs}/{name}" for name in sorted(os.listdir(jobs))[:-keep]]
        for directory in old:
            if not (is_running(directory) or is_fresh(directory)):
                _remove(directory)
    except OSError:
        return


def _remove(directory: str) -> None:
    # Does what shutil.rmtree does, which is slow to import; every start from the twenty-first job on needs it.
    for place, below, names in os.walk(directory, topdown=False):
        for name in (*names, *below):
            _unlink(f"{place}/{name}")
    _unlink(directory)


def _unlink(path: str) -> None:
    """Remove a file, a link or an empty directory; leave what cannot be removed."""
    try:
        is_directory = os.path.isdir(path) and not os.path.islink(path)
        (os.rmdir if is_directory else os.unlink)(path)
    except OSError:
        return


def is_fresh(directory: str | os.PathLike[str]) -> bool:
    """Return whether the job's launcher touched its lock lately, for home directories that are shared without locks."""
    try:
        return abs(time.time() - os.stat(f"{os.fspath(directory)}/{LOCK_FILE}").st_mtime) < STALE_S
    except OSError:
        return False


def is_running(directory: str | os.PathLike[str]) -> bool:
    """Return whether a part of the job with this directory runs on this machine."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
