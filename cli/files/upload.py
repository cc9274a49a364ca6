"""Make a folder on the master contain exactly the files of a local directory; send only what differs.

The launcher copies the folder to the nodes (``launch --sync-dst-dir``). Jobs run elsewhere, so that none of their files
end up in it.
"""

import getpass
import os
import re
import shlex
import socket
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli.errors import ClusterError, UsageError
from cli.files.local_files import LocalFile, find_files, find_ignored
from cli.output import printable
from cli.ssh.master_connection import CommandResult, MasterConnection, last_line

FOLDER: Final = ".cache/deeplearning/push"
"""Folder of the copies in the login user's home on the master."""
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
LOCK_WAIT_S: Final = 10
CHUNK_BYTES: Final = 1 << 18
LISTING: Final = r"find . \( -type f -o -type l \) -printf '%y %s %T@ %m %P\0%l\0'"
ARCHIVE_BYTES: Final = 1 << 11
"""Approximate tar overhead per file."""
FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755
Progress = Callable[[int], None]
Show = Callable[[int], AbstractContextManager[Progress]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """Result of an upload."""

    name: str
    """Name of the directory on every node, in the login user's home."""
    files: int
    size: int
    sent_files: int
    sent_size: int
    ignored: Sequence[str] = ()
    """Files and folders of the directory that .gitignore left out."""

    @property
    def copy(self) -> str:
        """Return the folder on the master, relative to the home directory."""
        return f"{FOLDER}/{self.name}"


def remote_name(directory: Path) -> str:
    """Return the directory's name on the nodes: its own, with only characters that need no quoting."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", directory.resolve().name).lstrip("-.") or "job"


def upload(
    connection: MasterConnection,
    directory: Path,
    *,
    to: str | None = None,
    show: Show = lambda size: nullcontext(lambda sent: None),
) -> Upload:
    """Copy a directory to the master, under its own name or `to`.

    `show` gets the bytes to send, and yields the callback for each part sent.
    """
    name = remote_name(directory) if to is None else to
    if not NAME.fullmatch(name):
        raise UsageError(f"--to must be letters, digits and . _ - that begin with a letter or digit, got {name!r}")
    local = find_files(directory)
    with _locked_by_owner(connection, name, owner=_owner(directory)):
        changed = _sync(connection, directory.resolve(), local, folder=f"{FOLDER}/{name}", show=show)
    return Upload(
        name=name,
        files=len(local),
        size=sum(file.size for file in local.values()),
        sent_files=len(changed),
        sent_size=sum(file.size for file in changed),
        ignored=find_ignored(directory),
    )


def _sync(
    connection: MasterConnection,
    top: Path,
    local: Mapping[str, LocalFile],
    *,
    folder: str,
    show: Show,
) -> Sequence[LocalFile]:
    """Make a folder on the master contain the local files; return those that were sent."""
    remote = _list_remote_files(connection, folder)
    stale = sorted(remote.keys() - local.keys())
    changed = [file for path, file in sorted(local.items()) if not _is_unchanged(file, remote.get(path))]
    if stale or any(file.path in remote for file in changed):
        _remove(connection, folder, [*stale, *(file.path for file in changed if file.path in remote)])
    if changed:
        with show(sum(file.size for file in changed) + ARCHIVE_BYTES * len(changed)) as progress:
            chunks = _counted(_tar(top, changed), progress)
            _check(connection.output(_shell_line_in(folder, "tar -xpf -"), chunks=chunks))
    return changed


@contextmanager
def _locked_by_owner(connection: MasterConnection, name: str, *, owner: str) -> Iterator[None]:
    """Lock a copy while it is being written. Raises UsageError if it belongs to another user: all share one login."""
    lock, marker = f".{name}.lock", f".{name}.owner"
    line = (
        f"{{ exec 9>{lock} || exit; flock -w {LOCK_WAIT_S} 9 || {{ echo; exit; }}; "
        f"[ -s {marker} ] || printf '%s' {shlex.quote(owner)} >{marker} || exit; "
        f"head -n 1 {marker}; echo; cat >/dev/null; }}"
    )
    with connection.running(_shell_line_in(FOLDER, line)) as held:
        owner_on_master = _check(held).decode(errors="replace").strip()
        if not owner_on_master:
            raise ClusterError(f"another upload to ~/{name} is running: try again later")
        if owner_on_master != owner:
            advice = f"name another directory with --to, or remove ~/{FOLDER}/{marker} on the master"
            raise UsageError(f"~/{name} on the nodes comes from {printable(owner_on_master)}: {advice}")
        yield


def _owner(directory: Path) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # for example a container's user without a name
        user = str(os.getuid())
    return printable(f"{user}@{socket.gethostname().partition('.')[0]}:{directory.resolve()}")


def _shell_line_in(folder: str, command: str) -> str:
    return f"cd && mkdir -p {shlex.quote(folder)} && cd {shlex.quote(folder)} && {command}"


def _check(done: CommandResult) -> bytes:
    if done.exit_code:
        raise ClusterError(f"cannot copy to the master: {last_line(done.stderr) or f'exit code {done.exit_code}'}")
    return done.stdout


def _list_remote_files(connection: MasterConnection, folder: str) -> dict[str, LocalFile]:
    fields = _check(connection.output(_shell_line_in(folder, LISTING))).decode(errors="surrogateescape").split("\0")
    return dict(map(_parse_remote_file, fields[:-1:2], fields[1::2]))


def _parse_remote_file(line: str, link: str) -> tuple[str, LocalFile]:
    try:
        kind, size, mtime, mode, path = line.split(" ", 4)
        seconds, _, fraction = mtime.partition(".")
        file = LocalFile(
            path=path,
            size=0 if kind == "l" else int(size),
            mtime_ns=int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0")),
            executable=bool(int(mode, 8) & 0o100),
            link=link if kind == "l" else None,
        )
    except ValueError as error:
        raise ClusterError(f"the master's list of files cannot be read: {line!r}") from error
    return path, file


def _is_unchanged(file: LocalFile, remote: LocalFile | None) -> bool:
    if remote is None or file.link is not None or remote.link is not None:
        return remote is not None and file.link == remote.link
    return (file.size, file.mtime_ns, file.executable) == (remote.size, remote.mtime_ns, remote.executable)


def _remove(connection: MasterConnection, folder: str, paths: Sequence[str]) -> None:
    """Remove files, then empty folders: a file may replace a folder of the same name, or a folder a file."""
    names = "".join(f"./{path}\0" for path in paths).encode(errors="surrogateescape")
    _check(
        connection.output(
            _shell_line_in(folder, "xargs -0 rm -f -- && find . -mindepth 1 -type d -empty -delete"), chunks=[names]
        )
    )


def _tar(top: Path, files: Sequence[LocalFile]) -> Iterator[bytes]:
    """Yield a tar archive of the files, piece by piece."""
    for file in files:
        entry = tarfile.TarInfo(file.path)
        entry.mode = PROGRAM_MODE if file.executable else FILE_MODE
        entry.pax_headers = {"mtime": f"{file.mtime_ns // 10**9}.{file.mtime_ns % 10**9:09}"}
        if file.link is not None:
            entry.type, entry.linkname = tarfile.SYMTYPE, file.link
        entry.size = file.size
        yield entry.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
        if file.link is None:
            yield from _content(top / file.path, file.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _content(path: Path, size: int) -> Iterator[bytes]:
    """Yield exactly `size` bytes, to match the archive's header, and pad the last block."""
    left = size
    try:
        with path.open("rb") as file:
            while left:
                data = file.read(min(left, CHUNK_BYTES))
                if not data:
                    raise ClusterError(f"{path} became shorter while it was being sent")
                left -= len(data)
                yield data
    except OSError as error:
        raise ClusterError(f"cannot read {path}: {error.strerror}") from error
    yield bytes(-size % tarfile.BLOCKSIZE)


def _counted(chunks: Iterator[bytes], sent: Progress) -> Iterator[bytes]:
    for data in chunks:
        yield data
        sent(len(data))
