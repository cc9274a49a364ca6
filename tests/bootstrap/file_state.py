"""Read when a file was last written, without its time of access, which reading changes."""

from pathlib import Path


def file_state(path: Path) -> tuple[int, int, int]:
    """Inode, content, mode and owner of a file, each with its time."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns
