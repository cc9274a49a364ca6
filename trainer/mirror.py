"""The newest of a training's checkpoints in S3 too, for when no machine of it is left."""

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from trainer.errors import TrainerError
from trainer.files import second_name, unfinished
from trainer.metrics import Clock
from trainer.s3 import S3Folder

log = logging.getLogger(__name__)


class Mirror:
    """Copies one file at a time, beside the training, which never waits for it but at its end."""

    def __init__(self, folder: S3Folder, *, every_s: float, clock: Clock = time.monotonic) -> None:
        self.folder = folder
        self._every_s = every_s
        self._clock = clock
        self._copied_at = clock()
        self._copied: str | None = None
        self._copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="s3")
        self._copying: Future[None] | None = None

    def fetch_newer(self, beginning: str, *, than: str, into: Path) -> None:
        """Fetch the newest copy, by name, unless the machine has as new a one; TrainerError when S3 does not say.

        Not a warning: a training that began anew would remove what it could have gone on from.
        """
        newest = max(self.folder.names(beginning), default="")
        self._copied = newest or None
        if newest > than:
            self.folder.fetch(newest, into / newest)

    def offer(self, path: Path) -> None:
        """Copy the file, unless the last copy is not long ago or still under way."""
        busy = self._copying is not None and not self._copying.done()
        if not busy and self._clock() - self._copied_at >= self._every_s:
            self.copy(path)

    def copy(self, path: Path) -> None:
        """Copy the file beside the training, and then remove the copies before it."""
        self.wait()
        self._copied_at = self._clock()
        # The file may go while it is copied: newer ones take its place.
        held = unfinished(path)
        second_name(path, held)
        self._copying = self._copier.submit(self._store, held, path.name)

    def _store(self, held: Path, name: str) -> None:
        try:
            self.folder.store(held, name)
            before, self._copied = self._copied, name
            if before is not None and before != name:
                self.folder.remove(before)
        finally:
            held.unlink(missing_ok=True)

    def leave(self, path: Path | None) -> None:
        """Return when this file, the last one, is in S3."""
        self.wait()
        if path is not None and path.name != self._copied:
            self.copy(path)
            self.wait()

    def wait(self) -> None:
        """Return when nothing is copied any more. What cannot be is a warning: the machines have theirs."""
        if self._copying is not None:
            try:
                self._copying.result()
            except TrainerError as error:
                log.warning("%s", error)
            self._copying = None

    def publish(self, path: Path) -> str:
        """Copy what the training was for; returns where it is now. TrainerError when that fails."""
        self.wait()
        self.folder.store(path, path.name)
        return f"{self.folder}/{path.name}"

    def forget(self, beginning: str) -> None:
        """Remove all copies."""
        self.wait()
        self._copied = None
        for name in self.folder.names(beginning):
            self.folder.remove(name)
