"""Give each node a file system of its own, so that its disk can be full as an instance's can.

It lies in a sparse file, which takes no more room on this machine than the node has written and not deleted.
"""

import subprocess
from pathlib import Path

SIZE = "20G"
FILE_SYSTEM = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=1")
"""Options for a file system without a journal: it is never mounted again after a crash of this machine."""
OPTIONS = "loop,discard,noinit_itable,nobarrier"


def create_disk(node_directory: Path) -> Path:
    """Make a node's disk, mount it, and return the directory that will hold what the node writes."""
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
    """Unmount it. Nodes that started later hold a copy of the mount, which goes when the directory is removed."""
    subprocess.run(["umount", "-n", "--quiet", "--lazy", node_directory / "disk"], check=False)
