"""Choose a node's shard of a prefix, and find the files of other shards that its directory holds."""

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
SHARED_KINDS: Final = frozenset({"nfs", "nfs4", "lustre"})
"""File systems that several nodes have, so that the directory holds every node's shard."""


class Shard:
    """The part of a prefix that one of `count` nodes fetches: all of it without an index."""

    def __init__(self, shard: "Sequence[int] | None", *, directory: str) -> None:
        self._index, self._count = shard or (0, 1)
        self._is_only_ours = self._count > 1 and not _is_shared(directory)
        self.files_of_other_shards = 0
        """Number of files of other shards that the directory holds, of the keys so far."""

    def has(self, key: str, path: str) -> bool:
        """Return True if the object is in this shard; count an existing file of another shard."""
        if self._count == 1 or zlib.crc32(key.encode()) % self._count == self._index:
            return True
        if self._is_only_ours and os.path.lexists(path):
            self.files_of_other_shards += 1
        return False


def _is_shared(directory: str) -> bool:
    """Return True if several nodes may have the directory (proc(5), mountinfo)."""
    device = os.stat(directory).st_dev
    device_number = f"{os.major(device)}:{os.minor(device)}"
    for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
        fields, _, described = line.partition(" - ")
        if fields.split(" ")[2] == device_number:
            return described.split(" ")[0] in SHARED_KINDS
    return False
