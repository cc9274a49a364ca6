"""Find out how long the ranks on this node may take to save before they are killed.

A job's directory has lock files: each runner holds one while its ranks run, and the launcher holds another. While ranks
run, these files contain the job's grace period. Any process of the login user can write them, and this code runs as
root: nothing but a number leaves this module, and it has a limit.
"""

import fcntl
import os
import pwd
import re
import stat
from pathlib import Path
from typing import Final

from bootstrap.contract import MAX_GRACE_S
from bootstrap.jobs.job_directories import JOBS, entries

LOCK_SUFFIX: Final = ".lock"
"""End of the names of lock files: launcher.paths.LOCK_FILE and launcher.runner.run_lock."""
_GRACE: Final = re.compile(rb"([0-9]{1,9})\n")
_MAX_LENGTH: Final = 16
"""Longest content that is read, in bytes."""


def longest_grace_s(root: Path, user: str) -> float:
    """Return the longest grace period of the jobs with ranks on this node, in seconds; 0 without ranks."""
    try:
        jobs = root / pwd.getpwnam(user).pw_dir.lstrip("/") / JOBS
        locks = [lock for job in entries(jobs) for lock in _locks(job)]
    except (KeyError, OSError):
        return 0.0
    return float(min(MAX_GRACE_S, max(map(_grace_s, locks), default=0)))


def _locks(job: "os.DirEntry[str]") -> list[str]:
    """Return the lock files of a job; none if its directory cannot be read, which must not hide the other jobs'."""
    try:
        return [entry.path for entry in entries(Path(job.path)) if entry.name.endswith(LOCK_SUFFIX)]
    except OSError:
        return []


def _grace_s(lock: str) -> int:
    """Return the number in a lock file that a process holds; 0 for any other file."""
    try:
        # A pipe or a device in place of the file must not stop the agent.
        fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        content = os.read(fd, _MAX_LENGTH) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        match = _GRACE.fullmatch(content)
        return int(match[1]) if match and _is_held(fd) else 0
    except OSError:
        return 0
    finally:
        os.close(fd)


def _is_held(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
