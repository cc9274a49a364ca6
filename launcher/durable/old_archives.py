"""Delete old archives of files that no open job needs.

Jobs with the same files share an archive, so it does not go with a job's end.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from launcher.durable import mirror
from launcher.durable.bucket import JobBucket, open_bucket
from launcher.errors import LaunchError
from launcher.job_records.durable_state import DURABLE_DIR

log = logging.getLogger("launch")

KEPT: Final = timedelta(days=14)
"""Time for which an archive stays at least: a job that is submitted again finds its own."""
ROUND_INTERVAL_S: Final = 86400.0
BUSY_RETRY_DELAY_S: Final = 60.0
"""Seconds after which a round that met a submission begins again."""
LOCK: Final = "archives.lock"
LOCK_TIMEOUT_S: Final = 120.0
"""Timeout for a submission to get the lock, in seconds; its holder lists and deletes archives."""
POLL_S: Final = 0.05


@contextmanager
def archives_in_use() -> Iterator[None]:
    """Keep all archives until the job that needs one is stored. Raises LaunchError at the deadline."""
    until = time.monotonic() + LOCK_TIMEOUT_S
    with _lock_file() as lock:
        while not _try_lock(lock, fcntl.LOCK_SH):
            if time.monotonic() > until:
                raise LaunchError(f"waited {LOCK_TIMEOUT_S:g} s for the service that deletes old archives of jobs")
            time.sleep(POLL_S)
        yield


class OldArchives:
    """Archives that no job needs any more; deleted once a day."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = clock()

    def step(self, open_bucket: Callable[[], JobBucket] = open_bucket) -> None:
        """Delete old archives, if that is due and no job is being submitted."""
        if self._clock() < self._due:
            return
        self._due = self._clock() + BUSY_RETRY_DELAY_S
        try:
            with _lock_file() as lock:
                if _try_lock(lock, fcntl.LOCK_EX):
                    self._due = self._clock() + ROUND_INTERVAL_S
                    # An adopted bucket may have a rule that expires records of open jobs.
                    kept = {record.files for record in mirror.open_jobs() if record.files is not None}
                    count = open_bucket().delete_files(before=datetime.now(timezone.utc) - KEPT, kept=kept)
                    log.info("%d old archives of jobs deleted", count)
        except LaunchError as error:
            log.warning("old archives of jobs are not deleted: %s", error)


@contextmanager
def _lock_file() -> Iterator[int]:
    path = Path.home() / DURABLE_DIR / LOCK
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LaunchError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        yield lock
    finally:
        os.close(lock)


def _try_lock(lock: int, kind: int) -> bool:
    """Take the lock without waiting; return False if another process holds it."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LaunchError(f"{Path.home() / DURABLE_DIR / LOCK} cannot be locked: {error.strerror}") from error
    return True
