"""Unpack an MXNet environment: files, directories and links that stay inside it, all owned by the agent's user.

``tarfile`` has an extraction filter since Python 3.10.12 and 3.11.4, but later versions fixed holes in it. An
environment needs less than the filter allows, and these checks are the same on every node.
"""

import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from bootstrap.atomic_file import DIRECTORY_MODE
from bootstrap.errors import MxnetEnvironmentError

PROGRAM: Final = 0o755
DATA: Final = 0o644


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a gzipped tar file into an empty directory.

    Raises MxnetEnvironmentError, leaving what it has already unpacked.
    """
    links: set[PurePosixPath] = set()
    try:
        with tarfile.open(archive, "r|gz") as packed:
            for member, path in _checked(packed, links):
                _place(packed, member, directory / path)
    except (tarfile.TarError, zlib.error, EOFError, ValueError, FileExistsError, NotADirectoryError) as error:
        raise MxnetEnvironmentError("bad archive", f"cannot unpack the environment: {error}") from error


def _checked(packed: tarfile.TarFile, links: set[PurePosixPath]) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """Yield the members with their paths; refuse any path that leads through a link."""
    for member in packed:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or links.intersection((path, *path.parents)):
            raise _refused(member, "leads out of its directory")
        if member.issym():
            _check_target(member, path)
            links.add(path)
        elif not (member.isreg() or member.isdir()):
            raise _refused(member, "is neither file, directory nor symbolic link")
        yield member, path


def _check_target(member: tarfile.TarInfo, path: PurePosixPath) -> None:
    """Refuse a target outside of the directory.

    ``..`` may only be at the start: after a link, it would lead elsewhere.
    """
    target = PurePosixPath(member.linkname)
    ups = next((i for i, part in enumerate(target.parts) if part != ".."), len(target.parts))
    if target.is_absolute() or ".." in target.parts[ups:] or ups > len(path.parts) - 1:
        raise _refused(member, f"links out of its directory, to {member.linkname!r}")


def _refused(member: tarfile.TarInfo, reason: str) -> MxnetEnvironmentError:
    return MxnetEnvironmentError("bad archive", f"{member.name!r} of the environment {reason}")


def _place(packed: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Create one member without its owner and special modes, but with its time, which compiled modules record."""
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(DIRECTORY_MODE)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
        return
    content = packed.extractfile(member)
    assert content is not None  # The target is a file.
    with path.open("xb") as file:
        shutil.copyfileobj(content, file)
        os.fchmod(file.fileno(), PROGRAM if member.mode & 0o100 else DATA)
    os.utime(path, (member.mtime, member.mtime))
