"""A full disk: all that is free of a node's own file system is taken, at no cost to this machine.

Blocks that are reserved but never written take no room in the sparse file below (fallocate(2)).
"""

import errno
import os
from pathlib import Path

from local.errors import LocalError
from local.faults.nodes import NodeHandle

FIRST_CHUNK = 1 << 30
BLOCK = 4096


def fill(node: NodeHandle) -> None:
    """Let every write that needs a block fail with ENOSPC. Raises LocalError."""
    if not _filling(node).parent.is_mount():
        raise LocalError(f"{node.instance_id} has no disk")
    with _filling(node).open("ab") as file:
        take_all(file.fileno())


def free(node: NodeHandle) -> None:
    """Give back what was taken."""
    _filling(node).unlink(missing_ok=True)


def _filling(node: NodeHandle) -> Path:
    """Beside the node's files, where the node does not see it: the node cannot free the room itself."""
    return node.directory / "disk/filling"


def take_all(file: int) -> None:
    """Reserve every free block of the file system that a file is on."""
    chunk = FIRST_CHUNK
    while chunk >= BLOCK:
        try:
            os.posix_fallocate(file, os.fstat(file).st_size, chunk)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            chunk //= 2
