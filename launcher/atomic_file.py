"""Write a file whole or not at all: under another name first, then renamed into place."""

import os
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file at `path`, readable by its owner alone.

    The process id in the temporary name keeps two writers apart. The data reaches the disk before the name does, so
    that a crash leaves the old file or the new one. Raises OSError, and then leaves the old file.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise
