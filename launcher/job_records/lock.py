"""Detect whether a job's launcher is alive: it holds a lock on a file in the job's directory.

Other machines that share the home directory may not see the lock, so the launcher also touches the file regularly.
"""

import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path

from launcher.errors import LaunchError
from launcher.job_directories import lock_is_fresh, write_grace
from launcher.job_records.records import JobRecord
from launcher.paths import LOCK_FILE

TOUCH_INTERVAL_S = 60.0
"""Seconds between touches; a tenth of launcher.job_directories.STALE_S."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def acquire_lock(directory: Path) -> None:
    """Hold the job's lock until this process ends; a locked directory is not removed."""
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # launcher.runner.logs locks the processes' logs likewise.
    fcntl.flock(os.open(directory, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)


def write_grace_period(directory: Path, grace_s: float) -> None:
    """Write into the lock file that the job has ranks with this grace period; 0 for none. Raises OSError."""
    lock = os.open(directory / LOCK_FILE, os.O_WRONLY | os.O_CLOEXEC)
    try:
        write_grace(lock, grace_s)
    finally:
        os.close(lock)


def is_held(directory: Path) -> bool:
    """Return True if a process on this machine holds the job's lock; LaunchError if the file system cannot tell."""
    try:
        fd = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise LaunchError(f"{directory / LOCK_FILE}: cannot be locked: {error.strerror}") from error
    finally:
        os.close(fd)


def touch_lock(directory: Path) -> None:
    """Touch the lock file, so that other machines know that the launcher is alive. Raises OSError."""
    os.utime(directory / LOCK_FILE)


def mark_lock_stale(directory: Path) -> None:
    """Backdate the lock file, so that other machines immediately see that the job is over. Raises OSError."""
    os.utime(directory / LOCK_FILE, (0, 0))


def launcher_is_alive(directory: Path, record: JobRecord) -> bool:
    """Return True if the job's launcher is alive, on this machine or another; LaunchError if that is unknown."""
    return is_held(directory) or (is_on_other_machine(record) and lock_is_fresh(directory))


def is_on_other_machine(record: JobRecord) -> bool:
    """Return True if the job's launcher runs on another machine."""
    return record.machine not in (None, os.uname().nodename) and record.boot_id not in (None, boot_id())


def boot_id() -> str | None:
    """Return the id of this boot of this machine."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


def signal_launcher(directory: Path, record: JobRecord, number: signal.Signals) -> None:
    """Send a signal to the job's launcher if it is alive, and never to another process with its id."""
    if is_on_other_machine(record) and launcher_is_alive(directory, record):
        raise LaunchError(f"job {record.id} runs on {record.machine}: stop it there")
    with suppress(ProcessLookupError):
        launcher = os.pidfd_open(record.pid)
        try:
            # The lock is still held, so the process id was valid when it was read.
            if is_held(directory):
                signal.pidfd_send_signal(launcher, number)
        finally:
            os.close(launcher)
