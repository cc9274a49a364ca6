"""Look at what is mounted on the shared directory, and keep it read-only until the file system is there."""

import logging
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bootstrap.contract import SHARED_DIR
from bootstrap.errors import CommandError
from bootstrap.files.paths import under_root

log = logging.getLogger(__name__)

MOUNTINFO: Final = "/proc/self/mountinfo"
GUARD: Final = "deeplearning-not-mounted"
"""Source of the guard: an empty read-only file system. Without it root would write below the mount point."""
GUARD_COMMAND: Final = (
    *("mount", "-t", "tmpfs", "-o", "ro,size=4k,nr_inodes=2,mode=555,nosuid,nodev,noexec"),
    *(GUARD, SHARED_DIR),
)
OPEN_COMMAND: Final = (
    "find",
    SHARED_DIR,
    "-maxdepth",
    "0",
    "-uid",
    "0",
    "-perm",
    "755",
    "-exec",
    "chmod",
    "1777",
    "{}",
    "+",
)
"""Open the root directory of a new file system to all users, as /tmp is. Any other mode is somebody's choice."""
MOUNT_TIMEOUT_S: Final = 90.0
OPEN_TIMEOUT_S: Final = 30.0
NOT_IN_KERNEL: Final = "unknown filesystem type"
"""Part of mount(8)'s message if the kernel has no client."""


class MountError(CommandError):
    """The mount failed; ``has_client`` is False if the kernel does not know such file systems."""

    reason = "shared-storage"

    def __init__(self, message: str, *, has_client: bool = True) -> None:
        super().__init__(message)
        self.has_client = has_client


def run(command: Sequence[str], *, timeout_s: float) -> None:
    """Run a command to its end. Raises MountError."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MountError(f"{command[0]} failed: {error}") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[-200:]
        raise MountError(
            f"{command[0]} exited {done.returncode}: {said}",
            has_client=NOT_IN_KERNEL not in said and "No such device" not in said,
        )


def source_on(mountinfo: str, directory: str) -> str | None:
    """Return the source of what is mounted on a directory, the uppermost; None if nothing is (proc(5))."""
    sources = [
        line.partition(" - ")[2].split(" ")[1]
        for line in mountinfo.splitlines()
        if len(fields := line.split(" ")) > 4 and fields[4] == directory
    ]
    return sources[-1] if sources else None


class SharedDirectory:
    """The directory on this node."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def guard(self) -> None:
        """Make the directory refuse writes, also root's, unless something is mounted there. Raises MountError."""
        if self._source() is None:
            directory = under_root(self._root, SHARED_DIR)
            directory.mkdir(exist_ok=True)
            directory.chmod(0o555)
            run(GUARD_COMMAND, timeout_s=OPEN_TIMEOUT_S)

    def is_mounted(self) -> bool:
        """Return whether the file system is there; asks the kernel only, as the file system may not answer."""
        return self._source() not in (None, GUARD)

    def mount(self, command: Sequence[str]) -> None:
        """Mount the file system over the guard. Raises MountError."""
        run(command, timeout_s=MOUNT_TIMEOUT_S)

    def open_to_users(self) -> None:
        """Let every user write to a new file system. Raises MountError."""
        run(OPEN_COMMAND, timeout_s=OPEN_TIMEOUT_S)

    def _source(self) -> str | None:
        return source_on(under_root(self._root, MOUNTINFO).read_text(), SHARED_DIR)
