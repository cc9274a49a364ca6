"""Fill a node's disk by reserving all free space of its file system, at no cost to this machine.

Blocks that are reserved but never written take no room in the sparse file underneath (fallocate(2)).
"""

import errno
import os
from pathlib import Path

from local.errors import LocalError
from local.faults.node_handle import NodeHandle

FIRST_CHUNK = 1 << 30
BLOCK = 4096


def fill(node: NodeHandle) -> None:
    """Make every write that needs a block fail with ENOSPC. Raises LocalError."""
    if not _filler_file(node).parent.is_mount():
        raise LocalError(f"{node.instance_id} has no disk")
    with _filler_file(node).open("ab") as file:
        reserve_all_blocks(file.fileno())


def free(node: NodeHandle) -> None:
    """Release the reserved space."""
    _filler_file(node).unlink(missing_ok=True)


def _filler_file(node: NodeHandle) -> Path:
    """Return the filler's path beside the node's files, where the node cannot see and delete it."""
    return node.directory / "disk/filling"


def reserve_all_blocks(file: int) -> None:
    """Reserve every free block of the file system that a file is on."""
    chunk = FIRST_CHUNK
    while chunk >= BLOCK:
        try:
            os.posix_fallocate(file, os.fstat(file).st_size, chunk)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            chunk //= 2
