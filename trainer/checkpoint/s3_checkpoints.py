"""Upload a run's newest and final checkpoint to S3, so that the run survives the loss of all machines.

BestCheckpoint (best.py) uploads the best one itself: at other times, and with its score in the metadata.
"""

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
    """Uploads one file at a time in a thread, and downloads the newest.

    ``upload_if_due`` never waits; the other methods that upload or delete wait for a running upload.
    """

    def __init__(self, folder: S3Folder, *, every_s: float, clock: Clock = time.monotonic) -> None:
        self._folder = folder
        self._every_s = every_s
        self._clock = clock
        self._last_upload_at = clock()
        self._last_name: str | None = None
        self._uploader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="s3")
        self._uploading: Future[None] | None = None

    def download_newer(self, prefix: str, *, than: str, into: Path) -> None:
        """Download the newest checkpoint in S3 if its name sorts after this one.

        Raises TrainerError if S3 does not answer: after a mere warning, the run would start over and delete the
        checkpoint.
        """
        newest = max(self._folder.names(starting_with=prefix), default="")
        self._last_name = newest or None
        if newest > than:
            self._folder.download(newest, into / newest)

    def upload_if_due(self, path: Path) -> None:
        """Upload the file, unless the last upload is recent or still running."""
        busy = self._uploading is not None and not self._uploading.done()
        if not busy and self._clock() - self._last_upload_at >= self._every_s:
            self.upload(path)

    def upload(self, path: Path) -> None:
        """Upload the file in the thread, then delete the previous upload."""
        self.wait_until_uploaded()
        self._last_upload_at = self._clock()
        # Upload from a second link, because newer checkpoints replace the file.
        link = temporary_path(path)
        link_or_copy(path, link)
        self._uploading = self._uploader.submit(self._upload_and_delete_previous, link, path.name)

    def _upload_and_delete_previous(self, link: Path, name: str) -> None:
        try:
            self._folder.upload(link, name)
            previous, self._last_name = self._last_name, name
            if previous is not None and previous != name:
                self._folder.delete(previous)
        finally:
            link.unlink(missing_ok=True)

    def upload_newest_and_wait(self, path: Path | None) -> None:
        """Upload this file unless S3 has it, and wait for the end; with None, wait only for a running upload."""
        self.wait_until_uploaded()
        if path is not None and path.name != self._last_name:
            self.upload(path)
            self.wait_until_uploaded()

    def wait_until_uploaded(self) -> None:
        """Wait until no upload is running. A failed upload is a warning: the machines have the file."""
        if self._uploading is not None:
            try:
                self._uploading.result()
            except TrainerError as error:
                log.warning("%s", error)
            self._uploading = None

    def upload_final(self, path: Path) -> str:
        """Upload the final checkpoint and return its URL; TrainerError on failure."""
        self.wait_until_uploaded()
        self._folder.upload(path, path.name)
        return f"{self._folder}/{path.name}"

    def delete_with_prefix(self, prefix: str) -> None:
        """Delete all checkpoints with this prefix from S3."""
        self.wait_until_uploaded()
        self._last_name = None
        for name in self._folder.names(starting_with=prefix):
            self._folder.delete(name)
