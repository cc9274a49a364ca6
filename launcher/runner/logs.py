"""Keep the output of every process of a job on its node: one file per process, one directory per job.

Only the latest jobs are kept, and only the end of each output, so that logs do not fill the disk. An unwritable log
must not end a job.
"""

import fcntl
import os

from launcher.job_directories import KEPT_JOBS, remove_old_jobs
from launcher.paths import JOBS_DIR, log_name
from launcher.runner.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.spec import ProcessSpec

MAX_LOG_SIZE = 16 << 20
"""Size in bytes at which a log is rotated; one rotated file is kept."""


class JobLogs:
    """Directory of one job; it is kept at least as long as this process exists."""

    def __init__(self, home: str | os.PathLike[str], job_id: str) -> None:
        jobs = f"{os.fspath(home)}/{JOBS_DIR}"
        self.directory = f"{jobs}/{job_id}"
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._lock = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        remove_old_jobs(jobs, keep=KEPT_JOBS)

    def open(self, process: "ProcessSpec") -> "ProcessLog":
        """Begin the log of a process."""
        return ProcessLog(f"{self.directory}/{log_name(process.name)}")


class ProcessLog:
    """Log of one process with both streams in order of arrival; after a restart it continues."""

    def __init__(self, path: str) -> None:
        self._path = path
        fd = self._open()
        self._fd: int | None = fd
        self._size = os.fstat(fd).st_size

    def write(self, data: bytes) -> None:
        """Write `data`; stop writing once the disk is full."""
        if self._fd is None:
            return
        try:
            if self._size + len(data) > MAX_LOG_SIZE:
                self._rotate(self._fd)
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

    def _rotate(self, fd: int) -> None:
        os.replace(self._path, f"{self._path}.1")
        fresh = self._open()
        os.dup2(fresh, fd, inheritable=False)
        os.close(fresh)
        self._size = 0
