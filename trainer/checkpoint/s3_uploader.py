"""Copy a training's newest checkpoint to S3, for when none of its machines is left."""

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from trainer.atomic_file import link_or_copy, temporary_path
from trainer.errors import TrainerError
from trainer.metrics.results import Clock
from trainer.s3 import S3Folder

log = logging.getLogger(__name__)


class S3Checkpoints:
    """Uploads one file at a time in a thread, and downloads the newest; the training waits only at its end."""

    def __init__(self, folder: S3Folder, *, every_s: float, clock: Clock = time.monotonic) -> None:
        self.folder = folder
        self._every_s = every_s
        self._clock = clock
        self._uploaded_at = clock()
        self._uploaded: str | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="s3")
        self._uploading: Future[None] | None = None

    def download_newer(self, prefix: str, *, than: str, into: Path) -> None:
        """Fetch the newest copy, by name, if it is newer than this name; TrainerError when S3 does not answer.

        Not a warning: a training that started anew would delete what it could have resumed from.
        """
        newest = max(self.folder.names(prefix), default="")
        self._uploaded = newest or None
        if newest > than:
            self.folder.fetch(newest, into / newest)

    def offer(self, path: Path) -> None:
        """Upload the file, unless the last upload was recent or is still under way."""
        busy = self._uploading is not None and not self._uploading.done()
        if not busy and self._clock() - self._uploaded_at >= self._every_s:
            self.upload(path)

    def upload(self, path: Path) -> None:
        """Upload the file in the thread, and then delete the previous copy."""
        self.wait()
        self._uploaded_at = self._clock()
        # Upload from a second link: newer checkpoints replace the file meanwhile.
        held = temporary_path(path)
        link_or_copy(path, held)
        self._uploading = self._thread.submit(self._store, held, path.name)

    def _store(self, held: Path, name: str) -> None:
        try:
            self.folder.store(held, name)
            previous, self._uploaded = self._uploaded, name
            if previous is not None and previous != name:
                self.folder.remove(previous)
        finally:
            held.unlink(missing_ok=True)

    def flush(self, path: Path | None) -> None:
        """Return when this file, the last one, is in S3."""
        self.wait()
        if path is not None and path.name != self._uploaded:
            self.upload(path)
            self.wait()

    def wait(self) -> None:
        """Return when no upload is under way. A failed upload is a warning: the machines have the file."""
        if self._uploading is not None:
            try:
                self._uploading.result()
            except TrainerError as error:
                log.warning("%s", error)
            self._uploading = None

    def publish(self, path: Path) -> str:
        """Upload the final checkpoint and return where it is; TrainerError on failure."""
        self.wait()
        self.folder.store(path, path.name)
        return f"{self.folder}/{path.name}"

    def delete_all(self, prefix: str) -> None:
        """Delete all copies with this prefix."""
        self.wait()
        self._uploaded = None
        for name in self.folder.names(prefix):
            self.folder.remove(name)
