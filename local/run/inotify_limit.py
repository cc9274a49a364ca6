"""Check how many more nodes fit: every systemd uses inotify instances, and Linux limits their number."""

import ctypes
import os
from pathlib import Path

NODE_NEEDS = 6
"""Number of inotify instances of root's processes in one node: systemd and logind."""
LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")


def _free_instances(wanted: int) -> int:
    """Count the inotify instances still available, up to ``wanted``. Linux does not report it, so allocate them."""
    libc = ctypes.CDLL(None)
    taken: list[int] = []
    try:
        while len(taken) < wanted and (handle := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
            taken.append(handle)
        return len(taken)
    finally:
        for handle in taken:
            os.close(handle)


def lack_of_watchers(nodes: int) -> str | None:
    """Explain in one line why this machine cannot run so many more nodes; None if it can."""
    wanted, limit = nodes * NODE_NEEDS, int(LIMIT.read_text())
    free = _free_instances(min(wanted, limit))
    if free >= wanted:
        return None
    return (
        f"{nodes} more nodes need {wanted} inotify instances, {free} of {limit} are free, room for "
        f"{free // NODE_NEEDS}; more with: sysctl fs.inotify.max_user_instances={_enough(wanted, limit - free)}"
    )


def _enough(wanted: int, used: int) -> int:
    """Return the next power of two that fits."""
    return 1 << (wanted + used - 1).bit_length()
