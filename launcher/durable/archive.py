"""Pack a job's directory into a reproducible archive, and unpack it on a new master."""

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from launcher.errors import LaunchError
from launcher.sync.ignore import read_ignore
from launcher.sync.manifest import DIRECTORY, LINK, Entry, Manifest, scan
from launcher.sync.request import IGNORE_FILE, SyncRequest, destination_path

MAX_SIZE = 500_000_000
"""Largest size of a job's files, in bytes; enough for code and small data. Put large data into the bucket directly."""
CHUNK = 1 << 20


def scan_source(source: Path, request: SyncRequest) -> Manifest:
    """List the files that a sync would send. Raises LaunchError if they are too large to store."""
    destination = destination_path(request.directory or ".", home=Path.home()).resolve()
    excluded_directory = source / destination.relative_to(source) if source in destination.parents else None
    manifest = scan(
        source, ignore=read_ignore(source, excludes=request.excludes), excluded_directory=excluded_directory
    )
    size = sum(entry.size for _, entry in manifest.files)
    if size > MAX_SIZE:
        raise LaunchError(
            f"--durable keeps at most {MAX_SIZE // 10**6} MB of files, and {source} has {size / 10**6:.0f} MB: "
            f"name data in {IGNORE_FILE} and bring it with --sync-s3"
        )
    return manifest


def pack(source: Path, manifest: Manifest, archive: Path) -> str:
    """Write the archive; return its SHA-256."""
    try:
        with (
            archive.open("wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=1, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            for entry in manifest.entries:
                _add(tar, source, entry)
    except OSError as error:
        raise LaunchError(f"--durable: cannot keep {error.filename or source}: {error.strerror or error}") from error
    return sha256_of(archive)


def _add(tar: tarfile.TarFile, source: Path, entry: Entry) -> None:
    member = tarfile.TarInfo(entry.path)
    member.mode = entry.mode
    if entry.kind == DIRECTORY:
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif entry.kind == LINK:
        member.type, member.linkname = tarfile.SYMTYPE, entry.target
        tar.addfile(member)
    else:
        member.size, member.mtime = entry.size, entry.mtime_ns // 10**9
        with (source / entry.path).open("rb") as content:
            tar.addfile(member, content)


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def unpack(archive: Path, directory: Path, *, sha256: str) -> None:
    """Unpack the archive into `directory` atomically. Raises LaunchError if its hash is wrong, before unpacking."""
    actual = sha256_of(archive)
    if actual != sha256:
        raise LaunchError(f"archive of the job's files must have SHA-256 {sha256}, got {actual}")
    try:
        part = Path(tempfile.mkdtemp(dir=directory.parent, prefix=".unpack-"))
    except OSError as error:
        raise LaunchError(f"cannot unpack the job's files: {error}") from error
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                _extract(tar, member, part)
        os.replace(part, directory)  # noqa: PTH105  (the same as Path.replace, which mypy takes for a file's)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise LaunchError(f"cannot unpack the job's files: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Write one member below the directory; tarfile has had a filter for this only since Python 3.10.12 and 3.11.4."""
    path = directory / member.name
    if ".." in Path(member.name).parts or not path.parent.resolve().is_relative_to(directory.resolve()):
        raise LaunchError(f"archive of the job's files must stay in its directory, got {member.name!r}")
    if member.isdir():
        path.mkdir()
        path.chmod(member.mode)
    elif member.issym():
        path.symlink_to(member.linkname)
    elif (content := tar.extractfile(member)) is not None:
        with path.open("xb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(member.mode)
        os.utime(path, (member.mtime, member.mtime))
