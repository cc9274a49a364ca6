"""Answer the kernel's requests with the files of a directory, which every node has: the contents of a file system."""

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from local.storage.nfs_client.inodes import Inodes, file_kind
from local.storage.nfs_client.messages import (
    LOCK_IS_FLOCK,
    UNANSWERED,
    Operation,
    Request,
    answer,
    attributes_answer,
    directory_entry,
    entry_answer,
    init_answer,
    open_answer,
    statistics_answer,
)

_MODE, _USER, _GROUP, _SIZE, _ATIME, _MTIME, _ATIME_NOW, _MTIME_NOW = 1, 2, 4, 8, 16, 32, 128, 256
"""Flags of a SETATTR request: the attributes that it sets."""
_LOCKS: Final = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}
Entry = tuple[bytes, int, int]
"""Name, inode and kind."""


class FileServer:
    """Serves one directory; the kernel checks permissions."""

    def __init__(self, root: Path) -> None:
        self._inodes = Inodes(root)
        self._listings: dict[int, list[Entry]] = {}
        self._waiting: dict[int, Request] = {}
        """Requests for locks that others hold, by their numbers."""

    @property
    def has_waiting(self) -> bool:
        """Return True while a process waits for a lock."""
        return bool(self._waiting)

    def answers(self, message: bytes) -> list[bytes]:
        """Return the answers to a request; none if it expects none or has to wait."""
        request = Request.parse(message)
        if request.operation == Operation.INTERRUPT:
            [unique] = request.fields("Q")
            waiting = self._waiting.pop(unique, None)
            return [answer(waiting.unique, error=errno.EINTR)] if waiting else []
        if request.operation == Operation.SETLKW:
            self._waiting[request.unique] = request
            return self.retry_locks()
        reply = self._answer(request)
        return [] if request.operation in UNANSWERED else [reply, *self.retry_locks()]

    def retry_locks(self) -> list[bytes]:
        """Return the answers to those that now get their lock."""
        tried = {unique: self._answer(request) for unique, request in self._waiting.items()}
        ended = {unique: result for unique, result in tried.items() if result != answer(unique, error=errno.EAGAIN)}
        for unique in ended:
            del self._waiting[unique]
        return [*ended.values()]

    def _answer(self, request: Request) -> bytes:
        act = _ACTIONS.get(request.operation)
        if act is None:
            return answer(request.unique, error=errno.ENOSYS)
        try:
            return answer(request.unique, act(self, request))
        except OSError as error:
            return answer(request.unique, error=error.errno or errno.EIO)

    def _init(self, _: Request) -> bytes:
        return init_answer()

    def _entry(self, request: Request, name: bytes, *, is_new: bool = False) -> bytes:
        node, status = self._inodes.look_up(request.node, name)
        if is_new:
            os.chown(self._inodes.path(node), request.user, request.group)
            status = os.fstat(self._inodes.descriptor(node))
        return entry_answer(node, status)

    def _look_up(self, request: Request) -> bytes:
        return self._entry(request, *request.names())

    def _forget(self, request: Request) -> bytes:
        self._inodes.forget(request.node, *request.fields("Q"))
        return b""

    def _forget_batch(self, request: Request) -> bytes:
        count, _ = request.fields("2I")
        for node, lookups in struct.iter_unpack("<2Q", request.body[8 : 8 + 16 * count]):
            self._inodes.forget(node, lookups)
        return b""

    def _attributes(self, request: Request) -> bytes:
        return attributes_answer(os.fstat(self._inodes.descriptor(request.node)))

    def _set_attributes(self, request: Request) -> bytes:
        changed, _, _, size, _, *times = request.fields("2I6Q3I")
        mode, _, user, group = struct.unpack_from("<4I", request.body, 68)
        path = self._inodes.path(request.node)
        if changed & (_USER | _GROUP):
            os.chown(path, user if changed & _USER else -1, group if changed & _GROUP else -1)
        if changed & _MODE:
            Path(path).chmod(mode & 0o7777)
        if changed & _SIZE:
            os.truncate(path, size)
        if changed & (_ATIME | _MTIME):
            self._set_times(path, changed, times)
        return self._attributes(request)

    def _set_times(self, path: str, changed: int, times: list[int]) -> None:
        status, now = Path(path).stat(), time.time_ns()
        access = now if changed & _ATIME_NOW else times[0] * 10**9 + times[3]
        change = now if changed & _MTIME_NOW else times[1] * 10**9 + times[4]
        chosen = (
            access if changed & _ATIME else status.st_atime_ns,
            change if changed & _MTIME else status.st_mtime_ns,
        )
        os.utime(path, ns=chosen)

    def _read_link(self, request: Request) -> bytes:
        return os.readlink(b"", dir_fd=self._inodes.descriptor(request.node))

    def _make_link(self, request: Request) -> bytes:
        name, target = request.names()
        os.symlink(target, name, dir_fd=self._inodes.descriptor(request.node))
        return self._entry(request, name, is_new=True)

    def _make_node(self, request: Request) -> bytes:
        mode, device, _, _ = request.fields("4I")
        [name] = request.names("4I")
        os.mknod(name, mode, device, dir_fd=self._inodes.descriptor(request.node))
        return self._entry(request, name, is_new=True)

    def _make_directory(self, request: Request) -> bytes:
        mode, _ = request.fields("2I")
        [name] = request.names("2I")
        os.mkdir(name, mode, dir_fd=self._inodes.descriptor(request.node))
        return self._entry(request, name, is_new=True)

    def _remove(self, request: Request) -> bytes:
        [name], parent = request.names(), self._inodes.descriptor(request.node)
        remove = os.rmdir if request.operation == Operation.RMDIR else os.unlink
        remove(name, dir_fd=parent)
        return b""

    def _rename(self, request: Request) -> bytes:
        [directory], (old, new) = request.fields("Q"), request.names("Q")
        descriptor = self._inodes.descriptor(directory)
        os.rename(old, new, src_dir_fd=self._inodes.descriptor(request.node), dst_dir_fd=descriptor)
        return b""

    def _link(self, request: Request) -> bytes:
        [node], [name] = request.fields("Q"), request.names("Q")
        os.link(self._inodes.path(node), name, dst_dir_fd=self._inodes.descriptor(request.node), follow_symlinks=True)
        return self._entry(request, name)

    def _open(self, request: Request) -> bytes:
        flags, _ = request.fields("2I")
        return open_answer(os.open(self._inodes.path(request.node), flags & os.O_ACCMODE))

    def _create(self, request: Request) -> bytes:
        flags, mode, _, _ = request.fields("4I")
        [name], parent = request.names("4I"), self._inodes.descriptor(request.node)
        open_flags = flags & (os.O_ACCMODE | os.O_TRUNC) | os.O_NOFOLLOW
        try:
            handle, is_new = os.open(name, open_flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=parent), True
        except FileExistsError:  # Another node was faster.
            if flags & os.O_EXCL:
                raise
            handle, is_new = os.open(name, open_flags, dir_fd=parent), False
        return self._entry(request, name, is_new=is_new) + open_answer(handle)

    def _read(self, request: Request) -> bytes:
        handle, offset, size, _ = request.fields("2Q2I")
        return os.pread(handle, size, offset)

    def _write(self, request: Request) -> bytes:
        handle, offset, size, _ = request.fields("2Q2I")
        return struct.pack("<I4x", os.pwrite(handle, request.body[40 : 40 + size], offset))

    def _sync(self, request: Request) -> bytes:
        os.fsync(*request.fields("Q"))
        return b""

    def _flush(self, _: Request) -> bytes:
        return b""

    def _allocate(self, request: Request) -> bytes:
        handle, offset, size, mode = request.fields("3QI")
        if mode:
            raise OSError(errno.EOPNOTSUPP, "")
        os.posix_fallocate(handle, offset, size)
        return b""

    def _release(self, request: Request) -> bytes:
        os.close(*request.fields("Q"))
        return b""

    def _lock(self, request: Request) -> bytes:
        handle, _, _, _, kind, _, flags = request.fields("4Q3I")
        if flags & LOCK_IS_FLOCK == 0:
            raise OSError(errno.ENOSYS, "")
        fcntl.flock(handle, _LOCKS[kind] | fcntl.LOCK_NB)
        return b""

    def _statistics(self, request: Request) -> bytes:
        return statistics_answer(os.statvfs(self._inodes.path(request.node)))

    def _open_directory(self, request: Request) -> bytes:
        handle = os.open(self._inodes.path(request.node), os.O_RDONLY | os.O_DIRECTORY)
        with os.scandir(handle) as listing:
            entries = [(os.fsencode(e.name), e.inode(), _kind(e)) for e in listing]
        itself = (os.fstat(handle).st_ino, file_kind(os.fstat(handle).st_mode))
        self._listings[handle] = [(b".", *itself), (b"..", *itself), *entries]
        return open_answer(handle)

    def _read_directory(self, request: Request) -> bytes:
        handle, offset, size, _ = request.fields("2Q2I")
        entries = b""
        for position, (name, number, kind) in enumerate(self._listings[handle][offset:], offset + 1):
            entry = directory_entry(position, name, number=number, kind=kind)
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return entries

    def _release_directory(self, request: Request) -> bytes:
        self._listings.pop(*request.fields("Q"))
        return self._release(request)


def _kind(entry: os.DirEntry[str]) -> int:
    """Return the kind of an entry without reading the file; 0 for others, which the kernel then looks up."""
    if entry.is_symlink():
        return file_kind(stat.S_IFLNK)
    return file_kind(stat.S_IFDIR if entry.is_dir() else stat.S_IFREG if entry.is_file() else 0)


_ACTIONS: Final[Mapping[int, Callable[[FileServer, Request], bytes]]] = {
    Operation.LOOKUP: FileServer._look_up,
    Operation.FORGET: FileServer._forget,
    Operation.GETATTR: FileServer._attributes,
    Operation.SETATTR: FileServer._set_attributes,
    Operation.READLINK: FileServer._read_link,
    Operation.SYMLINK: FileServer._make_link,
    Operation.MKNOD: FileServer._make_node,
    Operation.MKDIR: FileServer._make_directory,
    Operation.UNLINK: FileServer._remove,
    Operation.RMDIR: FileServer._remove,
    Operation.RENAME: FileServer._rename,
    Operation.LINK: FileServer._link,
    Operation.OPEN: FileServer._open,
    Operation.READ: FileServer._read,
    Operation.WRITE: FileServer._write,
    Operation.STATFS: FileServer._statistics,
    Operation.RELEASE: FileServer._release,
    Operation.FSYNC: FileServer._sync,
    Operation.FLUSH: FileServer._flush,
    Operation.INIT: FileServer._init,
    Operation.OPENDIR: FileServer._open_directory,
    Operation.READDIR: FileServer._read_directory,
    Operation.RELEASEDIR: FileServer._release_directory,
    Operation.SETLK: FileServer._lock,
    Operation.SETLKW: FileServer._lock,
    Operation.CREATE: FileServer._create,
    Operation.BATCH_FORGET: FileServer._forget_batch,
    Operation.FALLOCATE: FileServer._allocate,
}
