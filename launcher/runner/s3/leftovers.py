"""Delete the temporary files of interrupted downloads whose objects were never fetched again."""

import fcntl
import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

PART: Final = re.compile(r"\.launch-part-[0-9a-f]{16}(\.ranges)?")
"""Matches the names of parts (launcher.runner.sync.part_file) and of their journals (ranged_file)."""
MIN_AGE_S: Final = 86400.0
"""Seconds since the last change of a file that is deleted."""


def remove_leftovers(directories: Iterable[str]) -> None:
    """Delete this user's old parts and journals directly below the directories; keep those that a download has."""
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                names = {entry.name for entry in entries if PART.fullmatch(entry.name)}
        except OSError:
            continue
        # A part is deleted together with its journal.
        for name in names - {f"{other}.ranges" for other in names}:
            with suppress(OSError):
                _remove(f"{directory}/{name}")


def _remove(path: str) -> None:
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # Do not lock a new file: the download that has just created it would find the lock taken, and fail.
        if not _is_old(file):
            return
        # A file system without locks raises OSError, and the file stays.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_old(file) and os.path.samestat(os.fstat(file), os.lstat(path)):
            os.unlink(path)
            os.unlink(f"{path}.ranges")
    finally:
        os.close(file)


def _is_old(file: int) -> bool:
    """Return True for a regular file of this user that nothing has changed lately."""
    status = os.fstat(file)
    # Not its modification time, which is that of the object just before the file gets its name.
    age_s = time.time() - status.st_ctime
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and age_s > MIN_AGE_S
