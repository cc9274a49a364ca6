"""Describe a directory: path, kind, permissions, size and time of each entry, but no contents.

Like rsync, treat a file as unchanged while its size and modification time are the same, so that a second sync reads no
file.
"""

import base64
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from launcher.errors import LaunchError
from launcher.sync.ignore import Ignore

FILE, DIRECTORY, LINK = "f", "d", "l"
SECOND_NS = 10**9


class Entry(NamedTuple):
    """A file, directory or symbolic link."""

    path: str
    """Path below the directory."""
    kind: str
    mode: int = 0
    """Permission bits; the owner may always write to a directory, so that it can receive files."""
    size: int = 0
    mtime_ns: int = 0
    target: str = ""
    """Target of a link."""


class Manifest:
    """Entries of a directory, each after its parent."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)

    @property
    def files(self) -> Iterator[tuple[int, Entry]]:
        """Return the files with their numbers, which are the same on all machines."""
        return ((number, entry) for number, entry in enumerate(self.entries) if entry.kind == FILE)

    def total_size(self, numbers: set[int]) -> int:
        """Return the total size of some of the files, in bytes."""
        return sum(self.entries[number].size for number in numbers)

    def pack(self) -> str:
        """Encode the manifest as one word."""
        return base64.b64encode(zlib.compress(self._text(), level=1)).decode("ascii")

    @classmethod
    def unpack(cls, packed: str) -> "Manifest":
        """Decode what `pack` wrote."""
        rows = json.loads(zlib.decompress(base64.b64decode(packed)))
        return cls([Entry(*row) for row in rows])

    @property
    def digest(self) -> str:
        """Return a digest of this state of the directory."""
        return hashlib.blake2b(self._text(), digest_size=8).hexdigest()

    def _text(self) -> bytes:
        return json.dumps(self.entries, separators=(",", ":")).encode("ascii")


def scan(
    source: Path,
    *,
    ignore: Ignore,
    excluded_directory: Path | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Manifest:
    """Scan `source` without following links, except what `ignore` excludes and `excluded_directory`.

    Skip sockets, devices and pipes. Raises LaunchError once `is_stopped` returns True.
    """
    entries: list[Entry] = []
    excluded_path = str(excluded_directory.relative_to(source)) if excluded_directory else None
    above = [""]
    while above:
        parent = above.pop()
        for item in _children(source / parent):
            if is_stopped():
                raise LaunchError(f"{source} was not scanned")
            path = f"{parent}{item.name}"
            is_directory = item.is_dir(follow_symlinks=False)
            if path == excluded_path or ignore.matches(path, is_directory=is_directory):
                continue
            entry = _entry(item, path)
            if entry is not None:
                entries.append(entry)
                above += [f"{path}/"] * is_directory
    return Manifest(sorted(entries))


def _children(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as items:
            return list(items)
    except FileNotFoundError:
        return []  # deleted since its parent was read
    except OSError as error:
        raise LaunchError(f"cannot read {directory}: {error.strerror}") from error


def _entry(item: os.DirEntry[str], path: str) -> Entry | None:
    try:
        status = item.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return Entry(path, LINK, target=link_target(item.path))
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, DIRECTORY, stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IRWXU)
    if stat.S_ISREG(status.st_mode):
        return Entry(path, FILE, stat.S_IMODE(status.st_mode) & 0o777, status.st_size, status.st_mtime_ns)
    return None


def link_target(path: "str | Path") -> str:
    """Return a link's target byte for byte."""
    return os.readlink(path)  # noqa: PTH115  (a Path would normalize it)


def is_unchanged(status: os.stat_result, entry: Entry) -> bool:
    """Return True if the file on disk is the one described by the entry."""
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_size == entry.size
        and (status.st_mtime_ns == entry.mtime_ns or _is_same_second(status.st_mtime_ns, entry.mtime_ns))
    )


def _is_same_second(stored: int, sent: int) -> bool:
    """Return True if `stored` equals `sent` on a file system with a resolution of one second, such as Lustre."""
    return stored % SECOND_NS == 0 and stored == sent // SECOND_NS * SECOND_NS
