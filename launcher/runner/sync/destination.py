"""Make a directory of this node equal to the launcher's.

Delete only files from an earlier sync that are unchanged since then: a job's checkpoints, logs and notes stay, whatever
their names, and so do excluded files. If a sent file's name is already taken here, the existing file counts as changed
unless an earlier sync put it there, and is overwritten only on request. If the job runs in the source directory itself,
it may have written the file on both sides; a file that no sync sent is then a result of this node, and stays.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from launcher.errors import LaunchError
from launcher.runner.sync.part_file import temporary_path
from launcher.runner.sync.sync_state import SyncState
from launcher.sync.ignore import Ignore
from launcher.sync.manifest import DIRECTORY, FILE, LINK, Entry, Manifest, is_unchanged, link_target


class Destination:
    """The directory, its record, and the manifest to match."""

    def __init__(self, directory: Path, manifest: Manifest, *, ignore: Ignore, home: Path) -> None:
        self.directory = directory
        self.manifest = manifest
        self._ignore = ignore
        self._state = SyncState(home, directory.resolve())
        self._before, self._interrupted = self._state.read()
        self._replaced: list[Entry] = []
        self._unchanged: dict[int, int] = {}
        """Mode of each file that already matches the manifest, by number."""
        self._sent: dict[str, list[Entry]] | None = None

    def changed(self) -> list[str]:
        """Return the files that differ from both the manifest and the last sync; `prepare` would overwrite them."""
        changed_paths: list[str] = []
        for number, entry in enumerate(self.manifest.entries):
            if entry.kind == DIRECTORY:
                continue
            try:
                # Creating a Path for each of 100,000 files would take longer than the system calls.
                status = os.lstat(f"{self.directory}/{entry.path}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            if entry.kind == FILE and is_unchanged(status, entry):
                self._unchanged[number] = status.st_mode
                continue
            match = next((old for old in self._sent_files().get(entry.path, ()) if is_unchanged(status, old)), None)
            if match is None:
                changed_paths.append(entry.path)
            else:
                self._replaced.append(match)
        return changed_paths

    def is_result(self, path: str) -> bool:
        """Return True if a job wrote the file: there was an earlier sync, and none sent a file of this name.

        Before the first sync, any file may be source code that somebody copied there.
        """
        return bool(self._sent_files()) and path not in self._sent_files()

    def _sent_files(self) -> dict[str, list[Entry]]:
        if self._sent is None:
            self._sent = {}
            for entry in (*self._before.entries, *self._interrupted.entries):
                if entry.kind == FILE:
                    self._sent.setdefault(entry.path, []).append(entry)
        return self._sent

    def prepare(self, kept: frozenset[str] = frozenset()) -> set[int]:
        """Make directories and links, remove old files; return the numbers of the files whose content is needed.

        Call `changed` first. The files `kept` stay as they are.
        """
        make_directory(self.directory)
        before, after = self._before, self._record(kept)
        if before.entries != after.entries:
            self._remove_gone(before)
            # Record first: a recorded file that does not exist is harmless, an unrecorded one would never be deleted.
            self._state.write(after, replaced=Manifest(self._replaced))
        needed = {
            number
            for number, entry in enumerate(self.manifest.entries)
            if entry.path not in kept and self._prepare_entry(number, entry)
        }
        if needed and not os.access(self.directory, os.W_OK | os.X_OK):
            raise LaunchError(f"{self.directory}: Permission denied")
        return needed

    def check_space(self, needed: int) -> None:
        """Raise LaunchError now if the file system lacks room for `needed` bytes, instead of failing an hour later."""
        status = os.statvfs(self.directory)
        if needed > status.f_bavail * status.f_frsize:
            free = status.f_bavail * status.f_frsize
            raise LaunchError(f"{self.directory}: not enough space: {needed} bytes needed, {free} free")

    def release(self) -> None:
        """End the sync."""
        self._state.release()

    def _record(self, kept: frozenset[str]) -> Manifest:
        """Return the record after this sync; for the files `kept`, it repeats the earlier entries."""
        after = self._with_excluded(self._before)
        if not kept:
            return after
        entries = [entry for entry in after.entries if entry.path not in kept]
        return Manifest(sorted([*entries, *(entry for entry in self._before.entries if entry.path in kept)]))

    def _with_excluded(self, before: Manifest) -> Manifest:
        """Return the entries for the record, including files of earlier syncs that are now excluded and stay."""
        present = {entry.path for entry in self.manifest.entries}
        kept = [
            entry
            for entry in before.entries
            if entry.path not in present and self._ignore.excludes(entry.path, is_directory=entry.kind == DIRECTORY)
        ]
        return Manifest(sorted([*self.manifest.entries, *kept])) if kept else self.manifest

    def _remove_gone(self, before: Manifest) -> None:
        kinds = {entry.path: entry.kind for entry in self._with_excluded(before).entries}
        # Parents precede their entries, so iterate backwards.
        for entry in reversed(before.entries):
            if kinds.get(entry.path) != entry.kind:
                with suppress(FileNotFoundError, NotADirectoryError):
                    self._remove(entry)

    def _remove(self, entry: Entry) -> None:
        path = self.directory / entry.path
        if entry.kind == DIRECTORY:
            with suppress(OSError):  # not empty: it contains files of the job
                path.rmdir()
        elif entry.kind == FILE and is_unchanged(path.lstat(), entry):
            path.unlink()
            temporary_path(path).unlink(missing_ok=True)
        elif entry.kind == LINK and path.is_symlink() and link_target(path) == entry.target:
            path.unlink()

    def _prepare_entry(self, number: int, entry: Entry) -> bool:
        """Make a directory or link, or make way for a file; return True if the file's content is needed."""
        if number in self._unchanged:
            _set_mode(f"{self.directory}/{entry.path}", entry.mode, self._unchanged[number])
            return False
        try:
            status = os.lstat(f"{self.directory}/{entry.path}")
        except FileNotFoundError:
            status = None
        path = self.directory / entry.path
        if entry.kind == DIRECTORY:
            _put_directory(path, entry.mode, status)
        elif entry.kind == LINK:
            _put_link(path, entry.target, status)
        elif status is not None and stat.S_ISDIR(status.st_mode):
            _remove_if_empty(path)
        return entry.kind == FILE


def make_directory(path: Path) -> None:
    """Make a directory and its parents; LaunchError if a file is in the way."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise LaunchError(f"{path}: is not a directory") from error


def _put_directory(path: Path, mode: int, status: os.stat_result | None) -> None:
    if status is None:
        path.mkdir()
        path.chmod(mode)
    elif stat.S_ISDIR(status.st_mode):
        _set_mode(path, mode, status.st_mode)
    elif not path.is_dir():  # A link to a directory is allowed: large data may be on another disk.
        raise LaunchError(f"{path}: is in the way of a directory")


def _set_mode(path: Path | str, mode: int, present: int) -> None:
    if stat.S_IMODE(present) & 0o777 != mode:
        Path(path).chmod(mode)


def _put_link(path: Path, target: str, status: os.stat_result | None) -> None:
    if status is not None and stat.S_ISLNK(status.st_mode) and link_target(path) == target:
        return
    if status is not None and stat.S_ISDIR(status.st_mode):
        _remove_if_empty(path)
    part = temporary_path(path)
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(path)


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError as error:
        raise LaunchError(f"{path}: is a directory, and a file at the source: {error.strerror}") from error
