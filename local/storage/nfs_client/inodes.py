"""Keep the files that the kernel knows by a number, each with an open descriptor that survives its renaming."""

import os
import stat
from pathlib import Path
from typing import Final

ROOT: Final = 1
"""The kernel's number of the root directory."""


class Inodes:
    """Numbers of files, as the kernel has looked them up."""

    def __init__(self, root: Path) -> None:
        self._descriptors = {ROOT: os.open(root, os.O_PATH)}
        self._known: dict[tuple[int, int], int] = {}
        """Numbers by device and inode, so that hard links are one file."""
        self._lookups: dict[int, int] = {}
        self._last = ROOT

    def descriptor(self, node: int) -> int:
        """Return a descriptor that stands for the file, and reads nothing (open(2), O_PATH)."""
        return self._descriptors[node]

    def path(self, node: int) -> str:
        """Return a path to the file itself, even if it is a symbolic link."""
        return f"/proc/self/fd/{self._descriptors[node]}"

    def look_up(self, parent: int, name: bytes) -> tuple[int, os.stat_result]:
        """Return the number and the attributes of a file, and count the look-up. Raises OSError."""
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self._descriptors[parent])
        status = os.fstat(descriptor)
        node = self._known.get((status.st_dev, status.st_ino))
        if node is None:
            self._last = node = self._last + 1
            self._known[status.st_dev, status.st_ino] = node
            self._descriptors[node] = descriptor
        else:
            os.close(descriptor)
        self._lookups[node] = self._lookups.get(node, 0) + 1
        return node, status

    def forget(self, node: int, count: int) -> None:
        """Subtract look-ups of a file, and close it after the last one, when the kernel no longer uses its number."""
        if node == ROOT:
            return
        self._lookups[node] -= count
        if self._lookups[node] <= 0:
            descriptor = self._descriptors.pop(node)
            status = os.fstat(descriptor)
            os.close(descriptor)
            del self._known[status.st_dev, status.st_ino], self._lookups[node]


def file_kind(mode: int) -> int:
    """Return the kind of a directory's entry (readdir(3), d_type)."""
    return stat.S_IFMT(mode) >> 12
