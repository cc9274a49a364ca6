"""Files that are whole or not there, whatever ends the process that writes them."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trainer.errors import TrainerError


@contextmanager
def replacing(path: Path, *, what: str) -> Iterator[BinaryIO]:
    """What the block writes becomes the file, whole and on the disk, or nothing does."""
    # Several ranks may write the same file: a directory that machines share.
    temporary = unfinished(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TrainerError(f"cannot write {what} {path}, {error.strerror}") from error


def second_name(path: Path, other: Path) -> None:
    """Let a file also be the file ``other``, in place of what was there; a copy where there are no hard links."""
    temporary = unfinished(other)
    try:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)
        temporary.replace(other)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TrainerError(f"cannot write {other}, {error.strerror}") from error


def unfinished(path: Path) -> Path:
    """Where a file is written before it has its name: by this process of this machine alone."""
    return path.with_name(f".{path.name}.{os.uname().nodename}-{os.getpid()}.tmp")


def remove_unfinished(directory: Path, beginning: str) -> None:
    """Remove what processes of this machine that are gone have left of files whose names begin so."""
    # The AWS command line, too, has its own name for what it has not fetched whole (s3transfer, get_temp_filename).
    name = re.compile(rf"\.+{re.escape(beginning)}.*\.{re.escape(os.uname().nodename)}-(\d+)\.tmp(\.[0-9A-Fa-f]{{8}})?")
    try:
        for path in directory.iterdir():
            found = name.fullmatch(path.name)
            if found and not Path("/proc", found[1]).exists():
                path.unlink(missing_ok=True)
    except OSError as error:
        raise TrainerError(f"cannot clear up {directory}, {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    """Make the new name survive a power failure (fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
