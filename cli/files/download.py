"""Copy a file or folder from a node.

The node is not trusted: nothing is written outside of the destination, the user names the top entry, and no link is
created or followed. Of the local files that differ, newer ones stay and older ones are replaced; the caller learns
both, even if the download fails midway.
"""

import filecmp
import os
import posixpath
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from cli.aws.nodes import ClusterNode
from cli.errors import ClusterError, UsageError
from cli.files.upload import remote_name
from cli.ssh.master_connection import MasterConnection

PART_PREFIX = ".dlcluster-"
"""Prefix of a file's name until the file is complete."""
PERMISSIONS = 0o777


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """Tar archive that the master sends."""

    command: str
    """Command that prints the archive on the master."""
    name: str
    """Name of the archive's only top-level entry."""


@dataclass(slots=True)
class Differing:
    """Local files whose content differs from the node's."""

    replaced: list[Path] = field(default_factory=list)
    """Files that were older, or that the user wants to lose."""
    kept: list[Path] = field(default_factory=list)
    """Files that are newer; they stay as they are."""


@dataclass(slots=True)
class Download:
    """Result of a download."""

    path: Path
    files: int = 0
    size: int = 0
    links: int = 0
    """Number of links, devices and the like that were skipped."""
    is_empty: bool = True
    """True until the first entry arrives."""
    warnings: list[str] = field(default_factory=list)


def remote_tar(path: str, member: ClusterNode, *, master: ClusterNode) -> Archive:
    """Return the archive of a path on a node."""
    # The shell line starts in the home directory.
    parent, name = posixpath.split(posixpath.normpath(path.removeprefix("~/") or "~")) if path else ("", "")
    if name in ("", ".", "..", "~") or "\0" in path:
        raise UsageError(f"a remote path must name a file or folder in the home directory or below /, got {path!r}")
    line = f"cd && {shlex.join(['tar', '-C', parent or '.', '--format=posix', '-cf', '-', '--', name])}"
    on_worker = shlex.join(["ssh", "-o", "BatchMode=yes", "--", member.alias, line])
    return Archive(command=line if member == master else on_worker, name=name)


def missing_path(remote: str, path: str) -> str:
    """Return the path for a message, with its place in the folder to which run copies the current directory.

    `remote` is the path as the user gave it, which may begin with a node.
    """
    inside, project = path.removeprefix("~/"), remote_name(Path.cwd())
    shown = path if path.startswith(("/", "~")) else f"~/{path}"
    if inside.startswith(("/", "~")) or inside.split("/")[0] == project:
        return shown
    return f"{shown}, did you mean {remote.removesuffix(path)}{project}/{inside}?"


def require_directories(destination: str) -> None:
    """Raise UsageError if a local file is where the destination needs a directory."""
    path = Path(destination)
    needed = (path, *path.parents) if destination.endswith(os.sep) else path.parents
    if (file := next((part for part in needed if part.exists() and not part.is_dir()), None)) is not None:
        raise UsageError(f"cannot pull into {destination}: {file} is a file, not a directory; name another destination")


def download(
    connection: MasterConnection, source: Archive, destination: str, *, differing: Differing, overwrites: bool = False
) -> Download:
    """Unpack an archive that the master sends; if `destination` is a directory or ends with a slash, unpack into it.

    A local file that is newer and has other content is replaced only if the caller `overwrites`. `differing` receives
    each file as soon as it was replaced or kept, so the caller has the names even after an error.
    """
    top = Path(destination)
    is_directory = top.is_dir() or destination.endswith(os.sep)
    result = Download(path=top / source.name if is_directory else top)
    broken: Exception | None = None
    with connection.read_tar(source.command, warn=result.warnings.append) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for entry in archive:
                    parts = PurePosixPath(entry.name).parts
                    _check_name(entry.name, parts, expected=source.name)
                    _unpack(archive, entry, _inside(result.path, parts[1:]), result, differing, overwrites)
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            broken = error
        # tar pads its output; the command ends only once all is read. If the archive is broken, the command may explain
        # why.
        while stream.read(1 << 16):
            if broken is not None:
                raise ClusterError(f"the node sent an archive that cannot be read: {broken}") from broken
    if result.is_empty:
        raise ClusterError("received nothing: is the path right?")
    if broken is not None:
        raise ClusterError(f"the archive ended too early, after {result.files} files ({broken})") from broken
    return result


def _check_name(name: str, parts: Sequence[str], *, expected: str) -> None:
    if parts[:1] != (expected,) or ".." in parts:
        raise ClusterError(f"the node sent a file name that leads out of the destination: {name!r}")


def _inside(top: Path, parts: Sequence[str]) -> Path:
    """Return a path below `top`. Raises ClusterError if a link in the destination leads elsewhere."""
    path = top
    for part in parts:
        if path.is_symlink():
            raise ClusterError(f"{path} is a symbolic link, through which nothing is written")
        path /= part
    return path


def _unpack(
    archive: tarfile.TarFile,
    entry: tarfile.TarInfo,
    path: Path,
    result: Download,
    differing: Differing,
    overwrites: bool,
) -> None:
    result.is_empty = False
    try:
        if entry.isdir():
            if path.exists() and not path.is_dir():
                raise ClusterError(f"cannot pull a folder over the file {path}: remove it, or name another destination")
            path.mkdir(parents=True, exist_ok=True)
            return
        content = archive.extractfile(entry) if entry.isreg() else None
        if content is None:
            result.links += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        is_written = _write(content, entry, path, differing, overwrites)
    except OSError as error:
        raise ClusterError(f"cannot write {error.filename or path}: {error.strerror or error}") from error
    if is_written:
        result.files += 1
        result.size += entry.size


def _write(content: IO[bytes], entry: tarfile.TarInfo, path: Path, differing: Differing, overwrites: bool) -> bool:
    """Write a file under a temporary name until it is complete; return False if a newer local file stays instead."""
    number, name = tempfile.mkstemp(prefix=PART_PREFIX, dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            shutil.copyfileobj(content, file)
        part.chmod(entry.mode & PERMISSIONS & ~0o022)
        mtime_ns = _mtime_ns(entry)
        os.utime(part, ns=(mtime_ns, mtime_ns))
        differs = path.is_file() and not filecmp.cmp(part, path, shallow=False)
        if differs and path.stat().st_mtime_ns > mtime_ns and not overwrites:
            differing.kept.append(path)
            return False
        part.replace(path)
        if differs:
            differing.replaced.append(path)
        return True
    finally:
        part.unlink(missing_ok=True)


def _mtime_ns(entry: tarfile.TarInfo) -> int:
    """Return the exact modification time, by which the next run or push recognizes the file as the node's own."""
    seconds, _, fraction = entry.pax_headers.get("mtime", "").partition(".")
    if not (seconds.isdigit() and fraction.isdigit()):
        return int(entry.mtime * 10**9)
    return int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))
