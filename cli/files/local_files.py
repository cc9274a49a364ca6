"""List the files of a directory that are sent to the nodes: those not excluded by .gitignore."""

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli.errors import UsageError
from cli.ssh.master_connection import last_line

MAX_FILES: Final = 50_000
MAX_BYTES: Final = 1 << 30
"""Largest size in bytes; enough for a program and its configuration. Data belongs in S3, where every node fetches
it."""
ADVICE: Final = "name data in .gitignore, and bring it by the bucket (docs/use/data.md)"
CACHES: Final = ("__pycache__",)
"""Folders that are never sent."""
BYTECODE: Final = ".pyc"
_LIST_IGNORED: Final = ("ls-files", "-o", "-i", "--directory", "--exclude-standard", "-z")
"""Arguments with which git lists what .gitignore names, a folder as a whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalFile:
    """One file or symbolic link as the master should have it."""

    path: str
    """Path relative to the directory."""
    size: int
    mtime_ns: int
    executable: bool
    link: str | None
    """Target of a symbolic link; None for a file."""


def find_files(directory: Path) -> dict[str, LocalFile]:
    """Return the files by path: git's list in a checkout, otherwise all that no .gitignore names, outside hidden
    folders. Raises UsageError.
    """
    top = directory.resolve()
    if not top.is_dir():
        raise UsageError(f"no directory {directory}")
    if top in (Path.home().resolve(), Path(top.anchor)):
        raise UsageError(f"{top} is not a project: change to its directory, or use --no-sync")
    found: dict[str, LocalFile] = {}
    size = 0
    for path in _paths(top):
        if (file := _describe(top, path)) is None:
            continue
        found[path] = file
        size += file.size
        if size > MAX_BYTES or len(found) > MAX_FILES:
            raise UsageError(
                f"{top} has more than {MAX_BYTES >> 30} GiB or {MAX_FILES} files that would be sent: {ADVICE}"
            )
    if not found:
        raise UsageError(f"{top} has no files to send")
    return found


def is_sent(path: Path) -> bool:
    """Return True if files at a path would be sent from the current directory."""
    here, there = Path.cwd().resolve(), path.resolve()
    if not there.is_relative_to(here):
        return False
    try:
        return any((here / name).is_relative_to(there) for name in find_files(here))
    except UsageError:
        return False  # nothing is sent from here


def find_ignored(directory: Path) -> list[str]:
    """Return the files that git ignores, and the folders, with a slash at the end in place of their files."""
    top = directory.resolve()
    if _git_list(top) is None:
        ignored = _ignored_outside_git(top)
    else:
        done = _run_git(top, *_LIST_IGNORED)
        ignored = set() if done is None or done.returncode else _split(done.stdout)
    return sorted(path for path in ignored if Path(path).name not in CACHES and not path.endswith(BYTECODE))


def find_checkouts_below(directory: Path) -> list[str]:
    """Return the folders that are git checkouts in a directory that is none: the parent of several projects."""
    if (directory / ".git").exists():
        return []
    return sorted(entry.parent.name for entry in directory.glob("*/.git") if not entry.parent.name.startswith("."))


def _paths(top: Path) -> Iterator[str]:
    listed = _git_list(top)
    if listed is None:
        yield from _walk(top)
        return
    for path in listed:
        if path.rstrip("/") in ("", "."):
            continue  # git's entry for a submodule that is not checked out
        if (top / path).is_dir() and not (top / path).is_symlink():  # a submodule
            yield from (f"{path.rstrip('/')}/{inner}" for inner in _paths(top / path))
        else:
            yield path


def _git_list(top: Path) -> list[str] | None:
    """Return the files that git tracks or would track; None without git, outside of a checkout or if all is ignored."""
    done = _run_git(top, "ls-files", "-co", "--exclude-standard", "-z")
    if done is None:
        return None
    if done.returncode:
        if not any((folder / ".git").exists() for folder in (top, *top.parents)):
            return None
        raise UsageError(f"git cannot list {top}: {last_line(done.stderr.decode(errors='replace'))}")
    if not done.stdout and (checked := _run_git(top, "check-ignore", "-q", ".")) and checked.returncode == 0:
        return None  # The user names an ignored directory, and so means its files.
    return list(dict.fromkeys(map(os.fsdecode, done.stdout.split(b"\0")[:-1])))


def _run_git(top: Path, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    """Return git's answer in a directory; None without git."""
    try:
        return subprocess.run(
            ["git", "-C", str(top), *arguments], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:
        return None


def _split(listing: bytes) -> set[str]:
    return set(map(os.fsdecode, listing.split(b"\0")[:-1]))


def _walk(top: Path) -> Iterator[str]:
    ignored = {path.rstrip("/") for path in _ignored_outside_git(top)}

    def is_kept(folder: str, name: str) -> bool:
        return name not in CACHES and str(Path(folder, name).relative_to(top)) not in ignored

    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and is_kept(folder, name))
        links = (name for name in folders if Path(folder, name).is_symlink())
        files = sorted(name for name in names if is_kept(folder, name))
        yield from (str(Path(folder, name).relative_to(top)) for name in (*files, *links))


def _ignored_outside_git(top: Path) -> set[str]:
    """Return the files and folders that .gitignore files name, read by git in an empty repository beside them."""
    with tempfile.TemporaryDirectory() as repository:
        begin = ["git", f"--git-dir={repository}", f"--work-tree={top}"]
        try:
            subprocess.run(["git", "init", "-q", "--bare", repository], check=True, capture_output=True)
            done = subprocess.run([*begin, *_LIST_IGNORED], cwd=top, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return set()  # without git nothing is left out
    return _split(done.stdout)


def _describe(top: Path, path: str) -> LocalFile | None:
    """Describe a file; return None if it is gone, or if it is a socket, device or pipe."""
    try:
        info = os.lstat(top / path)
        link = str(Path(top, path).readlink()) if stat.S_ISLNK(info.st_mode) else None
    except OSError:
        return None
    if link is None and not stat.S_ISREG(info.st_mode):
        return None
    return LocalFile(
        path=path,
        size=0 if link is not None else info.st_size,
        mtime_ns=info.st_mtime_ns,
        executable=bool(info.st_mode & stat.S_IXUSR),
        link=link,
    )
