"""Give each node a file system of its own, so that its disk can be full as an instance's can, and copy it for images.

It lies in a sparse file, which takes no more room on this machine than the node has written and not deleted.

The control plane requests the image of a node as a directory in the run's directory, and the data plane fills it with a
copy of what the node has written. A node of the image has that copy as a layer above those of the image's own node.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SIZE = "20G"
FILE_SYSTEM = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=1")
"""Options for a file system without a journal: it is never mounted again after a crash of this machine."""
OPTIONS = "loop,discard,noinit_itable,nobarrier"
IMAGES = "images"
"""Directory of the images of nodes' disks, in the run's directory."""
INSTANCE, BASE, COMPLETE = "instance", "base", "complete"
"""Files of an image: its node, the image of that node, and, once it is complete, an empty file."""


def create_disk(node_directory: Path) -> Path:
    """Create and mount a node's disk; return the directory for everything that the node writes."""
    mounted, backing_file = node_directory / "disk", node_directory / "disk.img"
    mounted.mkdir()
    for command in (
        ["truncate", "--size", SIZE, str(backing_file)],
        [*FILE_SYSTEM, str(backing_file)],
        ["mount", "-n", "-o", OPTIONS, str(backing_file), str(mounted)],
    ):
        subprocess.run(command, check=True)
    # An overlay needs an upper and a work directory.
    for name in ("upper", "work"):
        (mounted / name).mkdir()
    return mounted / "upper"


def unmount_disk(node_directory: Path) -> None:
    """Unmount a node's disk.

    Nodes started later have a copy of the mount, which disappears when the directory is removed.
    """
    subprocess.run(["umount", "-n", "--quiet", "--lazy", node_directory / "disk"], check=False)


def request_image(run_dir: Path, image_id: str, *, instance_id: str, base: str) -> None:
    """Request an image of a node's disk."""
    directory = run_dir / IMAGES / image_id
    fresh = directory.with_name(f".{image_id}")
    fresh.mkdir(parents=True)
    (fresh / INSTANCE).write_text(instance_id)
    (fresh / BASE).write_text(base)
    fresh.rename(directory)


def is_complete(run_dir: Path, image_id: str) -> bool:
    """Return True if nodes can be launched from the image."""
    return (run_dir / IMAGES / image_id / COMPLETE).exists()


def take_requested_images(run_dir: Path, instance_id: str, *, disk: Path) -> None:
    """Fill the images of a node that are still to be taken."""
    for file in sorted((run_dir / IMAGES).glob(f"ami-*/{INSTANCE}")):
        if file.read_text() == instance_id and not (file.parent / COMPLETE).exists():
            _take_image(file.parent, disk=disk)


def _take_image(directory: Path, *, disk: Path) -> None:
    """Copy what a node has written, with the overlay's marks of what it has deleted."""
    if (directory / "disk").exists():  # A copy that failed, on a full machine, starts again.
        unmount_disk(directory)
        shutil.rmtree(directory / "disk")
    copy = create_disk(directory)
    os.sync()
    subprocess.run(["cp", "--archive", "--no-target-directory", disk, copy], check=True)
    (directory / COMPLETE).touch()


def ami_layers(run_dir: Path, image_id: str, *, base: Sequence[Path]) -> list[Path]:
    """Return the layers below a node's disk, uppermost first: those of an image made here, above Amazon's."""
    layers = []
    while (directory := run_dir / IMAGES / image_id).exists():
        layers.append(directory / "disk/upper")
        image_id = (directory / BASE).read_text()
    return [*layers, *base]
