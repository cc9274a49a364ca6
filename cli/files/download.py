"""Copy a file or folder from a node.

The node is not trusted: nothing is written outside of the destination, the user names the top entry, and no link is
made or followed.
"""

import os
import posixpath
import shlex
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cli.aws.nodes import Member
from cli.errors import ClusterError, UsageError
from cli.ssh.remote import Connection

PART_SUFFIX = ".part"
"""Suffix of a file's name until the file is complete."""
PERMISSIONS = 0o777


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """Say what writes an archive of a remote path."""

    command: str
    """Line for the master."""
    name: str
    """Name of the archive's only top entry."""


@dataclass(slots=True)
class Download:
    """Result of a download."""

    path: Path
    files: int = 0
    size: int = 0
    links: int = 0
    """Number of links, devices and the like, which are left out."""


def remote_tar(path: str, member: Member, *, master: Member) -> Archive:
    """Return how to get an archive of a path on a node."""
    # The line begins in the home directory.
    parent, name = posixpath.split(posixpath.normpath(path.removeprefix("~/") or "~")) if path else ("", "")
    if name in ("", ".", "..", "~") or "\0" in path:
        raise UsageError(f"a remote path must name a file or folder in the home directory or below /, got {path!r}")
    line = f"cd && {shlex.join(['tar', '-C', parent or '.', '-cf', '-', '--', name])}"
    on_worker = shlex.join(["ssh", "-o", "BatchMode=yes", "--", member.alias, line])
    return Archive(command=line if member == master else on_worker, name=name)


def download(connection: Connection, source: Archive, destination: Path) -> Download:
    """Unpack an archive that the master writes; an existing directory gets it inside."""
    result: Download | None = None
    top = destination / source.name if destination.is_dir() else destination
    try:
        with connection.reading(source.command) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                parts = PurePosixPath(entry.name).parts
                _check_name(entry.name, parts, expected=source.name)
                result = result or Download(path=top)
                _unpack(archive, entry, _inside(top, parts[1:]), result)
            # tar pads its output; the command ends once all is read.
            while stream.read(1 << 16):
                pass
    except tarfile.ReadError as error:
        raise ClusterError(f"received nothing: is the path right? ({error})") from error
    if result is None:
        raise ClusterError("received nothing: is the path right?")
    return result


def _check_name(name: str, parts: Sequence[str], *, expected: str) -> None:
    if parts[:1] != (expected,) or ".." in parts:
        raise ClusterError(f"the node sent a file with a name that leads elsewhere: {name!r}")


def _inside(top: Path, parts: Sequence[str]) -> Path:
    """Return a path below `top`. Raises ClusterError if a link in the destination leads elsewhere."""
    path = top
    for part in parts:
        if path.is_symlink():
            raise ClusterError(f"{path} is a symbolic link, through which nothing is written")
        path /= part
    return path


def _unpack(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path, result: Download) -> None:
    try:
        if entry.isdir():
            path.mkdir(parents=True, exist_ok=True)
            return
        content = archive.extractfile(entry) if entry.isreg() else None
        if content is None:
            result.links += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + PART_SUFFIX)
        part.unlink(missing_ok=True)
        with part.open("xb") as file:
            shutil.copyfileobj(content, file)
        part.chmod(entry.mode & PERMISSIONS & ~0o022)
        os.utime(part, (entry.mtime, entry.mtime))
        part.replace(path)
    except OSError as error:
        raise ClusterError(f"cannot write {error.filename or path}: {error.strerror or error}") from error
    result.files += 1
    result.size += entry.size
