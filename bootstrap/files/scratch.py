"""Find the instance's own NVMe disks and make a directory on them that every user may write."""

import logging
import os
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

IMAGE_MOUNT: Final = "/opt/dlami/nvme"
"""Mount point of all instance-store disks, as one file system, on a Deep Learning AMI; mounted at every boot before the
user data runs (its release notes: ``dlami-nvme.service``). Another image may use the same mount point."""
SCRATCH_DIR: Final = f"{IMAGE_MOUNT}/deeplearning"
_OPEN_TO_ALL: Final = 0o1777
"""Mode of /tmp: everybody may write, but only owners may delete."""


def ensure_scratch_directory(root: Path) -> str | None:
    """Make the directory if necessary and return its path; None without a mounted file system.

    The disks are empty after a stop, so check each time. A failing disk does not remove the node from the cluster.
    """
    if not (root / IMAGE_MOUNT.lstrip("/")).is_mount():
        return None
    try:
        return SCRATCH_DIR if _make_ready(root / SCRATCH_DIR.lstrip("/")) else None
    except OSError as error:
        log.debug("no scratch: %s", error)
        return None


def _make_ready(directory: Path) -> bool:
    """Make the directory and open it to all; False if another user made it, who could replace its contents."""
    directory.mkdir(exist_ok=True)
    # Everybody may be able to write to the mount point, so do not follow a link, which could lead root elsewhere.
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return False
        os.fchmod(handle, _OPEN_TO_ALL)
        return True
    finally:
        os.close(handle)
