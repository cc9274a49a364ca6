"""Write files atomically: complete or absent, however the writing process ends.

bootstrap/ and launcher/ have their own such file, because trainer/ may import neither.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trainer.errors import TrainerError


@contextmanager
def atomic_write(path: Path, *, what: str) -> Iterator[BinaryIO]:
    """Replace the file with what the block writes, synced to disk; leave it unchanged if the block fails."""
    # Unique names: ranks of several machines may write the same file in a shared directory.
    temporary = temporary_path(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TrainerError(f"cannot write {what} {path}: {error.strerror}") from error


def link_or_copy(path: Path, other: Path) -> None:
    """Replace ``other`` with a hard link to the file, or with a copy if the file system has no hard links."""
    temporary = temporary_path(other)
    try:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)
        temporary.replace(other)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TrainerError(f"cannot write {other}: {error.strerror}") from error


def temporary_path(path: Path) -> Path:
    """Return a temporary path for a file, unique to this process on this machine."""
    return path.with_name(f".{path.name}.{os.uname().nodename}-{os.getpid()}.tmp")


def remove_temporaries(directory: Path, prefix: str) -> None:
    """Remove temporary files with this prefix that dead processes of this machine left behind."""
    # The AWS command line adds its own suffix to a file that it has not downloaded completely (s3transfer,
    # get_temp_filename).
    pattern = re.compile(rf"\.+{re.escape(prefix)}.*\.{re.escape(os.uname().nodename)}-(\d+)\.tmp(\.[0-9A-Fa-f]{{8}})?")
    try:
        for path in directory.iterdir():
            match = pattern.fullmatch(path.name)
            if match and not Path("/proc", match[1]).exists():
                path.unlink(missing_ok=True)
    except OSError as error:
        raise TrainerError(f"cannot clear up {directory}, {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    """Make a renamed file survive a power failure (fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
