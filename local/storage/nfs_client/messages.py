"""Read and write the messages of FUSE, version 7.31 (linux/fuse.h): the kernel's requests, and the answers."""

import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

MAX_WRITE: Final = 1 << 17
"""Most bytes that the kernel writes in one request."""
MAX_REQUEST: Final = MAX_WRITE + 4096
VERSION: Final = (7, 31)
BIG_WRITES, FLOCK_LOCKS = 1 << 5, 1 << 10
"""Features of the file system: writes of more than a page, and locks by flock(2) that all nodes see."""
LOCK_IS_FLOCK: Final = 1
_HEADER: Final = struct.Struct("<2I2Q3I4x")
_ANSWER: Final = struct.Struct("<IiQ")
_ATTRIBUTES: Final = struct.Struct("<6Q10I")


class Operation(IntEnum):
    """Requests that this file system answers; the others do not exist for it."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    SETLK = 32
    SETLKW = 33
    CREATE = 35
    INTERRUPT = 36
    BATCH_FORGET = 42
    FALLOCATE = 43


UNANSWERED: Final = (Operation.FORGET, Operation.BATCH_FORGET, Operation.INTERRUPT)
"""Requests to which the kernel expects no answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request of the kernel."""

    operation: int
    unique: int
    """Number that the answer repeats."""
    node: int
    """The file or directory that it is about."""
    user: int
    group: int
    body: memoryview

    @classmethod
    def parse(cls, message: bytes) -> "Request":
        _, operation, unique, node, user, group, _ = _HEADER.unpack_from(message)
        body = memoryview(message)[_HEADER.size :]
        return cls(operation=operation, unique=unique, node=node, user=user, group=group, body=body)

    def fields(self, form: str) -> tuple[int, ...]:
        """Return the numbers at the start of the body."""
        return struct.unpack_from(f"<{form}", self.body)

    def names(self, form: str = "") -> list[bytes]:
        """Return the names that follow these numbers; each ends with a zero byte."""
        return bytes(self.body[struct.calcsize(f"<{form}") :]).split(b"\0")[:-1]


def answer(unique: int, body: bytes = b"", *, error: int = 0) -> bytes:
    """Return the answer to a request: a body, or an error number."""
    return _ANSWER.pack(_ANSWER.size + len(body), -error, unique) + body


def init_answer() -> bytes:
    """Return the answer to the first request."""
    return struct.pack("<4I2H2I2H8I", *VERSION, MAX_WRITE, BIG_WRITES | FLOCK_LOCKS, 16, 12, MAX_WRITE, 1, *[0] * 10)


def attributes(status: os.stat_result) -> bytes:
    times = [status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns]
    seconds, rests = [time // 10**9 for time in times], [time % 10**9 for time in times]
    owner = (status.st_mode, status.st_nlink, status.st_uid, status.st_gid, status.st_rdev & 0xFFFFFFFF)
    return _ATTRIBUTES.pack(status.st_ino, status.st_size, status.st_blocks, *seconds, *rests, *owner, 4096, 0)


def attributes_answer(status: os.stat_result) -> bytes:
    """Return attributes that the kernel may not keep, because other nodes change them."""
    return bytes(16) + attributes(status)


def entry_answer(node: int, status: os.stat_result) -> bytes:
    """Return a file that was looked up or created, which the kernel may not keep either."""
    return struct.pack("<Q32x", node) + attributes(status)


def open_answer(handle: int) -> bytes:
    return struct.pack("<Q8x", handle)


def statistics_answer(status: os.statvfs_result) -> bytes:
    blocks = (status.f_blocks, status.f_bfree, status.f_bavail, status.f_files, status.f_ffree)
    return struct.pack("<5Q3I28x", *blocks, status.f_bsize, status.f_namemax, status.f_frsize)


def directory_entry(position: int, name: bytes, *, number: int, kind: int) -> bytes:
    """Return an entry of a directory; ``position`` is where the next one follows."""
    entry = struct.pack("<2Q2I", number, position, len(name), kind) + name
    return entry + bytes(-len(entry) % 8)
