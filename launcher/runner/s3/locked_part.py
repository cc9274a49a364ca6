"""Open temporary files so that two downloads never write to the same one.

The lock in the user's home directory (launcher.runner.sync.s3_fetch) excludes neither another user's download nor one
to a directory below.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from launcher.errors import LaunchError
from launcher.runner.sync.part_file import temporary_path


def create_part(path: Path) -> int:
    """Create and lock the temporary file for `path`, replacing an old one; LaunchError if another download has that."""
    part = temporary_path(path)
    with suppress(FileExistsError):
        return _lock(_create(part), path)
    if part.is_symlink():
        part.unlink()
    else:
        earlier = open_part(path)
        try:
            part.unlink()
        finally:
            os.close(earlier)
    try:
        return _lock(_create(part), path)
    except FileExistsError as error:
        raise _in_use(path) from error


def open_part(path: Path) -> int:
    """Open and lock the existing temporary file for `path`; LaunchError if another download has the file."""
    return _lock(os.open(temporary_path(path), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), path)


def _create(part: Path) -> int:
    return os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _lock(file: int, path: Path) -> int:
    try:
        with suppress(OSError):  # a file system without locks
            _flock(file, path)
        # The download that had it may have renamed or removed it just now.
        if not os.path.samestat(os.fstat(file), temporary_path(path).lstat()):
            raise _in_use(path)
    except FileNotFoundError as error:
        os.close(file)
        raise _in_use(path) from error
    except BaseException:
        os.close(file)
        raise
    return file


def _flock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _in_use(path) from error


def _in_use(path: Path) -> LaunchError:
    return LaunchError(f"{path}: another launch fetches it at the moment")
