"""Tell whether a job's launcher lives: it locks a file in the job's directory, and the lock ends with it.

Other machines that share the home directory may not see the lock, so the launcher also touches the file regularly.
"""

import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path

from launcher.errors import LaunchError
from launcher.history.records import JobRecord
from launcher.job_directories import lock_is_fresh
from launcher.paths import LOCK_FILE

TOUCH_INTERVAL_S = 60.0
"""Seconds between touches; a tenth of launcher.job_directories.STALE_S."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def acquire_lock(directory: Path) -> None:
    """Lock this job until this process ends, which also keeps its directory from being cleared away."""
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # As launcher.runner.logs does for the processes' logs.
    fcntl.flock(os.open(directory, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)


def is_held(directory: Path) -> bool:
    """Return whether the job's launcher lives; LaunchError if the file system cannot tell."""
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
    """Touch the lock file, so that other machines know that the launcher lives. Raises OSError."""
    os.utime(directory / LOCK_FILE)


def mark_lock_stale(directory: Path) -> None:
    """Give the lock file an old time, so that the job counts as over on other machines at once. Raises OSError."""
    os.utime(directory / LOCK_FILE, (0, 0))


def is_alive(directory: Path, record: JobRecord) -> bool:
    """Return whether the job's launcher lives, here or on another machine; LaunchError if nobody can tell."""
    return is_held(directory) or (is_elsewhere(record) and lock_is_fresh(directory))


def is_elsewhere(record: JobRecord) -> bool:
    """Return whether the job's launcher is a process of another machine."""
    return record.machine not in (None, os.uname().nodename) and record.boot_id not in (None, boot_id())


def boot_id() -> str | None:
    """Return the id of this boot of this machine."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


def signal_launcher(directory: Path, record: JobRecord, number: signal.Signals) -> None:
    """Send a signal to the job's launcher if it lives, and never to another process with its number."""
    if is_elsewhere(record) and is_alive(directory, record):
        raise LaunchError(f"job {record.id} runs on {record.machine}: stop it there")
    with suppress(ProcessLookupError):
        launcher = os.pidfd_open(record.pid)
        try:
            # The lock is still held, so the launcher was alive when its number was looked up.
            if is_held(directory):
                signal.pidfd_send_signal(launcher, number)
        finally:
            os.close(launcher)
