"""Record the files that a sync wrote into a directory of this node; a later sync may delete or overwrite only those.

Each directory has one such file, below the home directory, with a lock beside it that a sync acquires.
"""

import fcntl
import hashlib
import json
import os
import socket
from pathlib import Path

from launcher.atomic_file import write_atomically
from launcher.errors import LaunchError
from launcher.sync.manifest import Manifest

RECORDS_DIR = ".local/state/deeplearning/sync"


class SyncState:
    """Record of one directory, with the lock that admits one sync at a time."""

    def __init__(self, home: Path, directory: Path) -> None:
        self._directory = str(directory)
        # Each host has its own, because nodes may share home directories.
        name = hashlib.sha256(f"{socket.gethostname()}:{directory}".encode(errors="surrogateescape")).hexdigest()[:32]
        self._path = home / RECORDS_DIR / f"{name}.json"
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise LaunchError(f"{directory}: another launch is sending files to it") from error

    def read(self) -> tuple[Manifest, Manifest]:
        """Read the record: the files that were sent, and those that the last sync was about to replace.

        Treat an unreadable record as empty, so that nothing is deleted.
        """
        try:
            record = json.loads(self._path.read_text())
            sent = Manifest.unpack(record["manifest"])
            return sent, Manifest.unpack(record["replaced"]) if "replaced" in record else Manifest([])
        except (OSError, ValueError, KeyError, TypeError):
            return Manifest([]), Manifest([])

    def write(self, manifest: Manifest, *, replaced: Manifest) -> None:
        """Replace the record; an interrupted sync may leave files of `replaced` in place."""
        record = {"directory": self._directory, "manifest": manifest.pack(), "replaced": replaced.pack()}
        write_atomically(self._path, json.dumps(record).encode("ascii"))

    def release(self) -> None:
        """Unlock the directory."""
        os.close(self._lock)
