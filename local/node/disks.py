"""Give each node its own file system, so that its disk can fill up like an instance's.

The file system is in a sparse file, which takes only as much room on this machine as the node has written and not
deleted.
"""

import subprocess
from pathlib import Path

SIZE = "20G"
FILE_SYSTEM = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=1")
"""Options for a file system without a journal: it is never mounted again after a crash of this machine."""
OPTIONS = "loop,discard,noinit_itable,nobarrier"


def create_disk(node_directory: Path) -> Path:
    """Create and mount a node's disk; return the directory for everything that the node writes."""
    mounted, image = node_directory / "disk", node_directory / "disk.img"
    mounted.mkdir()
    for command in (
        ["truncate", "--size", SIZE, str(image)],
        [*FILE_SYSTEM, str(image)],
        ["mount", "-n", "-o", OPTIONS, str(image), str(mounted)],
    ):
        subprocess.run(command, check=True)
    # An overlay needs an upper and a work directory.
    for name in ("upper", "work"):
        (mounted / name).mkdir()
    return mounted / "upper"


def unmount_disk(node_directory: Path) -> None:
    """Unmount it. Nodes started later have a copy of the mount, which disappears when the directory is removed."""
    subprocess.run(["umount", "-n", "--quiet", "--lazy", node_directory / "disk"], check=False)
