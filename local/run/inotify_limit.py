"""How many more nodes this machine has room for: every systemd takes inotify instances, which Linux limits."""

import ctypes
import os
from pathlib import Path

NODE_NEEDS = 6
"""inotify instances of root's processes in one node: systemd, logind."""
LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")


def _free_instances(wanted: int) -> int:
    """How many inotify instances can be had, at most ``wanted``: Linux says so only to who takes them."""
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
    """Why this machine cannot have so many more nodes, in one line; None when it can."""
    wanted, limit = nodes * NODE_NEEDS, int(LIMIT.read_text())
    free = _free_instances(min(wanted, limit))
    if free >= wanted:
        return None
    return (
        f"{nodes} more nodes need {wanted} inotify instances, {free} of {limit} are free, room for "
        f"{free // NODE_NEEDS}; more with: sysctl fs.inotify.max_user_instances={_enough(wanted, limit - free)}"
    )


def _enough(wanted: int, used: int) -> int:
    """The next power of two."""
    return 1 << (wanted + used - 1).bit_length()
