"""Download everything below a prefix that a directory lacks."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from launcher.errors import LaunchError
from launcher.runner.s3.leftovers import remove_leftovers
from launcher.runner.s3.listing import Listing, Object
from launcher.runner.s3.object_reader import RESTORE
from launcher.runner.s3.ranged_file import RANGE_SIZE, RangedFile
from launcher.runner.s3.shard import Shard
from launcher.runner.s3.workers import Arrived, Task, Workers
from launcher.sync.progress import plural

REPORT_INTERVAL_S: Final = 0.5
"""Seconds between two reports of the progress."""


class _Listed(NamedTuple):
    """Message: a page has been compared with the directory."""

    tasks: int
    size: int


_LAST: Final = _Listed(-1, 0)
"""Event after the last page."""


class _Finished(NamedTuple):
    """Message: a large file has its name."""


class Download:
    """Download of a prefix to a directory, which exists."""

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str,
        directory: str,
        shard: "tuple[int, int] | None",
        report: Callable[[dict[str, object]], None],
    ) -> None:
        self._source = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = prefix
        self._directory = directory
        self._shard = Shard(shard, directory=directory)
        self._report = report
        self._listing = Listing(bucket, prefix)
        self._ranged: dict[str, RangedFile] = {}
        """Large files that lack ranges, by their temporary path."""
        self._whole: SimpleQueue[RangedFile] = SimpleQueue()
        """Large files that lack only their name."""
        self._archived: list[str] = []
        """Keys of objects that cannot be read."""
        self._listed_directories: set[str] = set()
        """Directories of all files, also of files that exist already."""
        self._made_directories: set[str] = set()
        self._free = _free_bytes(directory)
        self._files = self._received = self._total = 0

    def run(self) -> dict[str, object]:
        """Download; return the final counts. Raises LaunchError and OSError."""
        pages = self._listing.pages()
        first = next(pages, [])
        if not first:
            raise LaunchError(f"{self._source} is empty")
        workers = Workers(self._listing.address)
        try:
            Thread(target=self._submit, args=(workers, first, pages), daemon=True).start()
            Thread(target=self._finish, args=[workers], daemon=True).start()
            self._wait_for_all(workers)
        finally:
            workers.end()
        remove_leftovers(self._listed_directories)
        return self._counts()

    def _counts(self) -> dict[str, object]:
        return {"files": self._files, "bytes": self._received, "total": self._total}

    def _wait_for_all(self, workers: Workers) -> None:
        """Take in what the workers have done, until all is listed and done."""
        open_tasks, is_listed, reported_at = 0, False, time.monotonic()
        while open_tasks or not is_listed:
            event = workers.next_event()
            if isinstance(event, str):
                raise LaunchError(event)
            if isinstance(event, Arrived):
                open_tasks -= 1
                if (file := self._take_in(event)) is not None:
                    open_tasks += 1
                    self._whole.put(file)
            elif isinstance(event, _Finished):
                open_tasks -= 1
                self._files += 1
            elif event == _LAST:
                is_listed = True
            else:
                open_tasks += event.tasks
                self._total += event.size
                self._check_space()
            if time.monotonic() - reported_at >= REPORT_INTERVAL_S:
                reported_at = time.monotonic()
                self._report(self._counts())

    def _take_in(self, event: Arrived) -> RangedFile | None:
        """Count a small file or note a range; return the large file that is now whole."""
        self._received += event.size
        if not event.is_range:
            self._files += 1
            return None
        file = self._ranged[event.path]
        file.receive(event.start)
        return self._ranged.pop(event.path) if file.is_complete else None

    def _finish(self, workers: Workers) -> None:
        """Give large files their names, in a thread: each waits for the disk, and the workers must not wait too."""
        while True:
            file = self._whole.get()
            with self._reported(workers):
                file.finish()
                workers.post(_Finished())

    def _check_space(self) -> None:
        """Raise LaunchError now if there is no room, instead of failing an hour later."""
        if self._total > self._free:
            # Leftovers of other fetches may be what fills the disk. This fetch's own parts have locks, and stay.
            before = _free_bytes(self._directory)
            remove_leftovers(self._listed_directories.copy())
            self._free += max(0, _free_bytes(self._directory) - before)
        if self._total > self._free:
            raise LaunchError(f"{self._directory}: not enough space: {self._total} bytes needed, {self._free} free")

    def _submit(self, workers: Workers, first: list[Object], pages: Iterator[list[Object]]) -> None:
        """List the rest while the workers download."""
        with self._reported(workers):
            self._submit_page(workers, first)
            for page in pages:
                self._submit_page(workers, page)
            workers.post(self._refusal() or _LAST)

    @contextmanager
    def _reported(self, workers: Workers) -> Iterator[None]:
        """Have the main thread fail with an error of another thread."""
        try:
            yield
        except LaunchError as error:
            workers.post(str(error))
        except OSError as error:
            workers.post(f"{error.filename or self._directory}: {error.strerror or error}")
        except Exception as error:
            # Otherwise a bug here would leave the main thread waiting.
            workers.post(f"{self._source}: {type(error).__name__}: {error}")

    def _refusal(self) -> str:
        """Return why this directory may not have this prefix, if so, once all is listed."""
        if self._shard.files_of_other_shards:
            files = plural(self._shard.files_of_other_shards, "file")
            return f"{self._directory} holds {files} of another share (--sync-s3-shard); empty it or name another one"
        if self._archived:
            more = f" and {len(self._archived) - 1} more" if len(self._archived) > 1 else ""
            return f"{self._source}: {self._archived[0]}{more}: archived (GLACIER), {RESTORE}"
        return ""

    def _submit_page(self, workers: Workers, page: list[Object]) -> None:
        ours = [s3_object for s3_object in page if self._is_ours(s3_object)]
        self._archived += [
            s3_object.key
            for s3_object in ours
            if s3_object.is_archived and not _is_there(self._path(s3_object), s3_object)
        ]
        if self._refusal():
            # Only count on.
            return
        tasks = [task for s3_object in ours for task in self._tasks(s3_object)]
        # The event comes first, so that the number of open tasks never falls below zero.
        workers.post(_Listed(len(tasks), sum(task.stop - task.start or task.s3_object.size for task in tasks)))
        for task in tasks:
            workers.tasks.put(task)

    def _is_ours(self, s3_object: Object) -> bool:
        """Return True unless the object belongs to another node, or stands for a directory."""
        return not s3_object.key.endswith("/") and self._shard.has(s3_object.key, self._path(s3_object))

    def _path(self, s3_object: Object) -> str:
        return f"{self._directory}/{s3_object.key[len(self._prefix) :]}"

    def _tasks(self, s3_object: Object) -> list[Task]:
        """Return the parts of an object to download: none if the file has the object's size and time."""
        name = s3_object.key[len(self._prefix) :]
        # Two keys must not name one file either, as "a/b" and "a//b" would.
        if not {"", ".", ".."}.isdisjoint(name.split("/")) or "\0" in name:
            raise LaunchError(f"{self._source}: {name!r} does not name a file of its own below {self._directory}")
        path = self._path(s3_object)
        directory = os.path.dirname(path)
        self._listed_directories.add(directory)
        if _is_there(path, s3_object):
            return []
        if directory not in self._made_directories:
            os.makedirs(directory, exist_ok=True)
            self._made_directories.add(directory)
        if s3_object.size <= RANGE_SIZE:
            return [Task(s3_object, path)]
        file = RangedFile(path, s3_object)
        missing = file.open()
        if not missing:
            # An interrupted download had only to rename it.
            file.finish()
            return []
        self._ranged[str(file.part)] = file
        return [Task(s3_object, str(file.part), start, stop) for start, stop in missing]


def _free_bytes(directory: str) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def _is_there(path: str, s3_object: Object) -> bool:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    # The whole second, too: a file that somebody changed in the object's second has a fraction.
    return status.st_size == s3_object.size and status.st_mtime_ns == s3_object.modified_s * 10**9
