"""Write files atomically: a reader finds the old or the new content, and an unchanged file is not touched.

launcher/ and trainer/ have such a file of their own: launcher/ may import only bootstrap's contract and record checks,
and trainer/ neither (tests/test_imports.py).
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bootstrap.contract import MARKER_BEGIN, MARKER_END

DIRECTORY_MODE = 0o755


@dataclass(frozen=True, kw_only=True, slots=True)
class Permissions:
    """Mode and owner of a file."""

    mode: int = 0o644
    uid: int | None = None
    """Owner and group; None keeps the owner, and gives a new file the agent's."""
    gid: int | None = None


def replace_block(text: str, lines: str) -> str:
    """Put the product's lines between the markers, replacing the old block or, if there is none, at the end.

    Every other line stays byte for byte. If a user's edit has left one marker without the other, only the marker is
    removed, because the user may have written the lines after it.
    """
    block = f"{MARKER_BEGIN}\n{lines}{MARKER_END}\n" if lines else ""
    kept: list[str] = []
    position: int | None = None
    start: int | None = None
    for line in _lines(text):
        marker = line.strip()
        if marker == MARKER_BEGIN:
            start = len(kept)
        elif marker == MARKER_END:
            if start is not None:
                del kept[start:]
                position = start if position is None else position
            start = None
        else:
            kept.append(line)
    if position is None:
        position = len(kept)
    if block and position and not kept[position - 1].endswith("\n"):
        kept[position - 1] += "\n"
    return "".join([*kept[:position], block, *kept[position:]])


def _lines(text: str) -> list[str]:
    """Split into lines with their ends, at newlines only, unlike str.splitlines."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def write_file(path: Path, text: str, permissions: Permissions | None = None) -> bool:
    """Make the file contain the text; return True if it changed."""
    permissions = permissions or Permissions()
    content = _encode(text)
    if _is_up_to_date(path, content, permissions):
        return False
    make_directory(path.parent)
    _replace(path, content, permissions)
    return True


def write_block(path: Path, lines: str) -> bool:
    """Make a shared file contain our block; keep its mode, its owner and all other lines."""
    path = Path(os.path.realpath(path))
    try:
        old_text = path.read_bytes().decode("utf-8", "surrogateescape")
        status = path.stat()
        permissions = Permissions(mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid)
    except FileNotFoundError:
        old_text, permissions = "", Permissions()
    return write_file(path, replace_block(old_text, lines), permissions)


def write_and_act(path: Path, text: str, *, act: Callable[[], None], pending: Path) -> bool:
    """Make the file contain the text, then call ``act``, even if the agent is killed in between.

    The file ``pending`` exists until ``act`` is done. It belongs under /run: after a reboot, the program that ``act``
    would notify has read the new file anyway.
    """
    if not _is_up_to_date(path, _encode(text), Permissions()):
        make_directory(pending.parent)
        pending.touch()
    changed = write_file(path, text)
    if pending.exists():
        act()
        pending.unlink()
    return changed


def set_permissions(path: Path, permissions: Permissions) -> None:
    """Give a file its mode and owner."""
    path.chmod(permissions.mode)
    os.chown(path, *_owner(permissions))


def point_link(path: Path, target: Path) -> bool:
    """Make the symbolic link point to the target, replacing an older link atomically."""
    if path.is_symlink() and path.readlink() == target:
        return False
    make_directory(path.parent)
    fresh = _temporary(path)
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)
    return True


def make_directory(path: Path) -> None:
    """Make the directory and its parents, readable by everybody regardless of the umask."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    path.chmod(DIRECTORY_MODE)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _is_up_to_date(path: Path, content: bytes, permissions: Permissions) -> bool:
    try:
        status = path.stat()
        return (
            path.read_bytes() == content
            and stat.S_IMODE(status.st_mode) == permissions.mode
            and permissions.uid in (None, status.st_uid)
            and permissions.gid in (None, status.st_gid)
        )
    except FileNotFoundError:
        return False


def _owner(permissions: Permissions) -> tuple[int, int]:
    """Return user and group for chown(2), where -1 keeps an ID."""
    return (-1 if permissions.uid is None else permissions.uid, -1 if permissions.gid is None else permissions.gid)


def _temporary(path: Path) -> Path:
    """Return a fixed name for the file's new content: a killed write leaves at most one, which the next one replaces.

    Its leading dot and its suffix keep it out of directories that are read as ``*.conf`` or ``*.sh``.
    """
    return path.with_name(f".{path.name}.deeplearning-new")


def _replace(path: Path, content: bytes, permissions: Permissions) -> None:
    fresh = _temporary(path)
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), permissions.mode)
            os.fchown(file.fileno(), *_owner(permissions))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
