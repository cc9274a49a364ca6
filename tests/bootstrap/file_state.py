"""Read when a file was last written, ignoring its access time, which reading changes."""

from pathlib import Path


def file_state(path: Path) -> tuple[int, int, int]:
    """Return inode, content, mode and owner of a file, with its times."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns
