"""Check how many more nodes fit: every systemd uses inotify instances, and Linux limits their number."""

import ctypes
import os
from pathlib import Path

INSTANCES_PER_NODE = 6
"""Number of inotify instances of root's processes in one node: systemd and logind."""
LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")


def _count_free(needed: int) -> int:
    """Count the inotify instances still available, up to ``needed``. Linux does not report it, so allocate them."""
    libc = ctypes.CDLL(None)
    taken: list[int] = []
    try:
        while len(taken) < needed and (handle := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
            taken.append(handle)
        return len(taken)
    finally:
        for handle in taken:
            os.close(handle)


def inotify_shortage(nodes: int) -> str | None:
    """Explain in one line why this machine cannot run that many more nodes; None if it can."""
    needed, limit = nodes * INSTANCES_PER_NODE, int(LIMIT.read_text())
    free = _count_free(min(needed, limit))
    if free >= needed:
        return None
    sufficient = _sufficient_limit(needed, limit - free)
    return (
        f"{nodes} more nodes need {needed} inotify instances, {free} of {limit} are free, room for "
        f"{free // INSTANCES_PER_NODE}; more with: sysctl fs.inotify.max_user_instances={sufficient}"
    )


def _sufficient_limit(needed: int, used: int) -> int:
    """Return the next power of two that fits."""
    return 1 << (needed + used - 1).bit_length()
