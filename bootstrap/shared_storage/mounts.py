"""Check what is mounted on the shared directory, and keep it read-only until the file system is mounted."""

import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bootstrap.contract import MOUNT_NO_CLIENT, MOUNT_REFUSED, MOUNT_UNREACHABLE, SHARED_DIR
from bootstrap.errors import CommandError
from bootstrap.files.paths import under_root
from bootstrap.shared_storage.target import TUNNEL_ADDRESS, TUNNEL_PORT, StorageTarget

log = logging.getLogger(__name__)

MOUNTINFO: Final = "/proc/self/mountinfo"
GUARD: Final = "deeplearning-not-mounted"
"""Source of the guard, an empty read-only file system; without it, root could write below the mount point."""
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
"""Opens the root directory of a new file system to all users, like /tmp. Any other mode was chosen by somebody."""
MOUNT_TIMEOUT_S: Final = 90.0
OPEN_TIMEOUT_S: Final = 30.0
_STATES: Final = {
    MOUNT_NO_CLIENT: ("unknown filesystem type", "No such device"),
    MOUNT_UNREACHABLE: (
        "Connection timed out",
        "Input/output error",
        "Transport endpoint is not connected",
        "Cannot send after transport endpoint shutdown",
    ),
}
"""Parts of the messages of mount(8) and of Lustre's mount helper by what they mean: the kernel lacks the client, or
servers and client do not reach each other ("Troubleshooting file system mount issues", FSx for Lustre User Guide)."""


class MountError(CommandError):
    """The mount failed; ``state`` is the shared directory's state that follows."""

    reason = "shared-storage"

    def __init__(self, message: str, *, state: str = MOUNT_REFUSED) -> None:
        super().__init__(message)
        self.state = state


def run(command: Sequence[str], *, timeout_s: float) -> None:
    """Run a command to its end; at the timeout, end its helpers too, which could still mount. Raises MountError."""
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    except OSError as error:
        raise MountError(f"{command[0]} failed: {error}") from error
    with process:
        try:
            _, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            raise MountError(f"{command[0]} failed: {error}", state=MOUNT_UNREACHABLE) from error
    if process.returncode != 0:
        output = " ".join(stderr.split())
        state = next(
            (state for state, parts in _STATES.items() if any(part in output for part in parts)), MOUNT_REFUSED
        )
        raise MountError(f"{command[0]} exited {process.returncode}: {output[-200:]}", state=state)


class OccupiedError(MountError):
    """Something else is mounted on the directory."""


class Mount(NamedTuple):
    """An entry of the mount table (proc(5), mountinfo)."""

    root: str
    """Path within the file system that is the root of this mount."""
    kind: str
    source: str
    options: tuple[str, ...]
    """Options of the file system."""

    def refers_to(self, target: StorageTarget) -> bool:
        """Return True if the entry names the file system: by its ID, our tunnel, or Lustre's own name.

        The kernel shows Lustre's servers by their addresses, and AWS's helper for EFS has its own tunnels.
        """
        if target.file_system in self.source or target.file_system in self.root:
            return True
        if target.is_efs:
            return self.source.startswith(f"{TUNNEL_ADDRESS}:") and f"port={TUNNEL_PORT}" in self.options
        return self.kind == "lustre" and self.source.endswith(f":/{target.mount_name}")


def mounted_on(mountinfo: str, directory: str) -> Mount | None:
    """Return the uppermost mount on a directory; None if there is none."""
    mount = None
    for line in mountinfo.splitlines():
        place, _, rest = line.partition(" - ")
        fields, described = place.split(" "), rest.split(" ")
        if len(fields) > 4 and fields[4] == directory and len(described) > 2:
            kind, source, options = described[:3]
            mount = Mount(root=fields[3], kind=kind, source=source, options=tuple(options.split(",")))
    return mount


class SharedDirectory:
    """The shared directory on this node."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def guard(self) -> None:
        """Make the directory refuse writes, even root's, unless something is mounted there. Raises MountError."""
        if self._current_mount() is None:
            directory = under_root(self._root, SHARED_DIR)
            directory.mkdir(exist_ok=True)
            directory.chmod(0o555)
            run(GUARD_COMMAND, timeout_s=OPEN_TIMEOUT_S)

    def is_mounted(self, target: StorageTarget) -> bool:
        """Return True if the file system is mounted; ask only the kernel, because the file system may not answer.

        Raises OccupiedError if something else is mounted.
        """
        mount = self._current_mount()
        if mount is None or mount.source == GUARD:
            return False
        if not mount.refers_to(target):
            raise OccupiedError(f"{SHARED_DIR} has another mount, {mount.kind} from {mount.source}")
        return True

    def mount(self, command: Sequence[str]) -> None:
        """Mount the file system over the guard. Raises MountError."""
        run(command, timeout_s=MOUNT_TIMEOUT_S)

    def open_to_users(self) -> None:
        """Let every user write to a new file system. Raises MountError."""
        run(OPEN_COMMAND, timeout_s=OPEN_TIMEOUT_S)

    def _current_mount(self) -> Mount | None:
        return mounted_on(under_root(self._root, MOUNTINFO).read_text(), SHARED_DIR)
