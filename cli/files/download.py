"""Copy a file or folder from a node.

The node is not trusted: nothing is written outside of the destination, and no link is made.
"""

import os
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


@dataclass(slots=True)
class Download:
    """Result of a download."""

    path: Path
    files: int = 0
    size: int = 0
    links: int = 0
    """Number of links, devices and the like, which are left out."""


def remote_tar(path: str, member: Member, *, master: Member) -> str:
    """Return the command for the master that prints a tar archive of a path on a node."""
    if not path or "\0" in path:
        raise UsageError(f"a remote path must name a file or folder, got {path!r}")
    # A tilde means the home directory, where the line begins anyway.
    home_relative = path.removeprefix("~/") if path != "~" else "."
    parent, name = os.path.split(home_relative.rstrip("/") or "/")
    words = ["tar", "-C", parent or ".", "-cf", "-", "--", name or "."]
    line = f"cd && {shlex.join(words)}"
    return line if member == master else shlex.join(["ssh", "-o", "BatchMode=yes", "--", member.alias, line])


def download(connection: Connection, command: str, destination: Path) -> Download:
    """Unpack the archive that a command on the master prints, into `destination` if that is a directory."""
    result: Download | None = None
    try:
        with connection.reading(command) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                parts = PurePosixPath(entry.name).parts
                _check_name(entry.name, parts)
                if result is None:
                    result = Download(path=destination / parts[0] if parts and destination.is_dir() else destination)
                _unpack(archive, entry, result.path.joinpath(*parts[1:]), result)
            # tar pads its output; the command ends once all is read.
            while stream.read(1 << 16):
                pass
    except tarfile.ReadError as error:
        raise ClusterError(f"received nothing: is the path right? ({error})") from error
    if result is None:
        raise ClusterError("received nothing: is the path right?")
    return result


def _check_name(name: str, parts: Sequence[str]) -> None:
    if name.startswith("/") or ".." in parts:
        raise ClusterError(f"the node sent a file name that leads out of the destination: {name!r}")


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
