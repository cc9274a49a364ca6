"""Write a file atomically: under a temporary name first, then renamed.

bootstrap and trainer have copies of their own: launcher may import only the contract and the checks of records
(tests/test_imports.py).
"""

import os
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file at `path`, readable only by its owner.

    The process id in the temporary name keeps two writers apart. The data is synced before the rename, so that a crash
    leaves the old file or the new one. Raises OSError, and then leaves the old file.
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
