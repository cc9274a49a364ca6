"""Receive a file under a temporary name in its directory, verify it, and rename it."""

import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path

from launcher.errors import LaunchError
from launcher.sync.manifest import Entry
from launcher.sync.stream import new_digest


class PartFile:
    """A file that is being received."""

    def __init__(self, directory: Path, entry: Entry) -> None:
        self._entry = entry
        self._path = directory / entry.path
        self._part = temporary_path(self._path)
        self._digest = new_digest()
        # Never follow an existing link.
        self._part.unlink(missing_ok=True)
        self._fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        self._digest.update(data)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise LaunchError(f"{self._path}: {error.strerror}") from error

    def finish(self, digest: bytes) -> None:
        """Rename the file into place with its mode and time; LaunchError if its digest differs."""
        if digest != self._digest.digest():
            raise LaunchError(f"{self._path}: arrived damaged")
        os.fchmod(self._fd, self._entry.mode)
        os.utime(self._fd, ns=(self._entry.mtime_ns, self._entry.mtime_ns))
        os.close(self._fd)
        self._fd = -1
        self._part.replace(self._path)

    def drop(self) -> None:
        """Delete the temporary file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with suppress(OSError):
                self._part.unlink()


def temporary_path(path: Path) -> Path:
    """Return a file's temporary path, which is always the same, so that no stale one remains."""
    name = hashlib.sha256(f"{socket.gethostname()}:{path.name}".encode(errors="surrogateescape")).hexdigest()[:16]
    return path.with_name(f".launch-part-{name}")
