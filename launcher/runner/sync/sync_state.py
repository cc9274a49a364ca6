"""What a sync has put into a directory of this node: only that may a later one take away again.

One file a directory, below the home directory; whoever works on the directory holds the lock beside it.
"""

import fcntl
import hashlib
import json
import os
import socket
from pathlib import Path

from launcher.errors import LaunchError
from launcher.sync.manifest import Manifest

RECORDS_DIR = ".local/state/deeplearning/sync"


class SyncState:
    """The record of one directory, and the sole right to work on it."""

    def __init__(self, home: Path, directory: Path) -> None:
        self._directory = str(directory)
        # Home directories may be shared between nodes.
        name = hashlib.sha256(f"{socket.gethostname()}:{directory}".encode(errors="surrogateescape")).hexdigest()[:32]
        self._path = home / RECORDS_DIR / f"{name}.json"
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise LaunchError(f"{directory}: another launch is sending files to it") from error

    def read(self) -> Manifest:
        """What is recorded; nothing where a record cannot be read: then nothing is taken away."""
        try:
            return Manifest.unpack(json.loads(self._path.read_text())["manifest"])
        except (OSError, ValueError, KeyError, TypeError):
            return Manifest([])

    def write(self, manifest: Manifest) -> None:
        """Record `manifest` in place of what was there."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"directory": self._directory, "manifest": manifest.pack()}))
        fresh.replace(self._path)

    def release(self) -> None:
        """Let others work on the directory."""
        os.close(self._lock)
