"""Download a dataset from S3 to this machine before training, with the AWS command line.

The copy remains in ``~/.cache/deeplearning/data``, or on the scratch disks that ``DEEPLEARNING_SCRATCH`` names, so that
the next run downloads only changes. ``launch --sync-s3`` and ``--sync-dst-dir`` download each byte only once and copy
it from node to node.
"""

import fcntl
import logging
import os
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trainer.errors import TrainerError
from trainer.s3 import SCHEME, S3Folder
from trainer.timeouts import DOWNLOAD_TIMEOUT_S

log = logging.getLogger(__name__)

POLL_S: Final = 0.2


def local_directory(place: str) -> Path:
    """Return the directory itself, or a local copy of ``s3://BUCKET/PREFIX``.

    Raises TrainerError if the download fails or takes longer than an hour.
    """
    if not place.startswith(SCHEME):
        return Path(place).expanduser()
    cache = _cache()
    directory = cache / "deeplearning/data" / place.removeprefix(SCHEME).strip("/")
    # Outside the directory, where another download might delete it.
    lock = cache / "deeplearning/locks" / urllib.parse.quote(place, safe="")
    asked = time.time()
    try:
        for made in (directory, lock.parent):
            made.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainerError(f"cannot keep {place} in {directory}: {error.strerror}") from error
    with _one_process_at_a_time(lock):
        # Another process of this job may have downloaded it while this one waited.
        if lock.stat().st_mtime < asked or not lock.stat().st_size:
            log.info("fetching %s to %s", place, directory)
            S3Folder(place).download_all(directory, timeout_s=DOWNLOAD_TIMEOUT_S)
            lock.write_text("fetched")
            # Linux's own time of a write may be some milliseconds old, and so before a wait that has just begun.
            now = time.time()
            os.utime(lock, (now, now))
    return directory


def _cache() -> Path:
    """Return the user's cache directory, on the scratch disks if there are any."""
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen)
    scratch = os.environ.get("DEEPLEARNING_SCRATCH")
    return Path(scratch, f"cache-{os.getuid()}") if scratch else Path.home() / ".cache"


@contextmanager
def _one_process_at_a_time(lock: Path) -> Iterator[None]:
    """Admit one process of the machine at a time; later ones find everything downloaded."""
    deadline = time.monotonic() + DOWNLOAD_TIMEOUT_S
    with lock.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TrainerError(f"another process has held {lock} for {DOWNLOAD_TIMEOUT_S:g} s") from None
                time.sleep(POLL_S)
        yield
