"""Encode files as a stream of records, each file followed by its digest.

Each file is read once, while it is sent. A file that differs from its manifest entry or changes during sending is
cancelled: no node keeps it, and the launcher scans the source again.
"""

import enum
import errno
import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from launcher.errors import LaunchError
from launcher.sync.manifest import Entry, Manifest, is_unchanged

RECORD = struct.Struct(">BI")
CHUNK = 1 << 18
BLOCK = 1 << 20
"""Bytes per read: many small files, or a part of a large one."""
MAX_CHUNK = 1 << 20
NO_LONGER_A_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ESTALE)
"""Errors of reading a path whose type has changed since the scan."""


class RecordType(enum.IntEnum):
    """Type of a record; the meaning of its number depends on the type."""

    FILE = 1
    """A file begins; the number is its number in the manifest."""
    DATA = 2
    """That many bytes of the file follow."""
    END = 3
    """The file is complete; that many bytes of digest follow."""
    CANCELLED = 4
    """The file changed while being sent; the receiver must drop it."""
    DONE = 5
    """End of the stream."""
    ALIVE = 6
    """A heartbeat: the sender works on files that the receiver does not need."""


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One record of the stream."""

    kind: RecordType
    number: int = 0
    data: bytes = b""

    def encode(self) -> bytes:
        """Return header and data as bytes."""
        return RECORD.pack(self.kind, self.number) + self.data


def new_digest() -> "hashlib._Hash":
    """Return a new hash object; both sides hash a file's bytes."""
    return hashlib.sha256()


class SourceStream:
    """Some files of a directory as a stream, block by block."""

    def __init__(self, source: Path, manifest: Manifest, numbers: Sequence[int]) -> None:
        self.changed: list[str] = []
        """Paths of the files that changed while being sent."""
        self._source = source
        self._manifest = manifest
        self._blocks = self._gather(numbers)

    def next_block(self) -> bytes:
        """Return the next bytes, none at the end. Reads the disk."""
        return next(self._blocks, b"")

    def _gather(self, numbers: Sequence[int]) -> Iterator[bytes]:
        pending = bytearray()
        for number in numbers:
            for record in self._file(number, self._manifest.entries[number]):
                pending += record.encode()
                if len(pending) >= BLOCK:
                    yield bytes(pending)
                    pending.clear()
        yield bytes(pending) + StreamRecord(RecordType.DONE).encode()

    def _file(self, number: int, entry: Entry) -> Iterator[StreamRecord]:
        path = self._source / entry.path
        yield StreamRecord(RecordType.FILE, number)
        digest, size = new_digest(), 0
        try:
            with _open_file(path) as file:
                # Read no further than its size: the file may grow as fast as we read.
                while size <= entry.size and (data := file.read(CHUNK)):
                    size += len(data)
                    digest.update(data)
                    yield StreamRecord(RecordType.DATA, len(data), data)
                unchanged = is_unchanged(os.fstat(file.fileno()), entry)
        except OSError as error:
            if error.errno not in NO_LONGER_A_FILE:
                raise LaunchError(f"cannot read {path}: {error.strerror}") from error
            unchanged = False
        if unchanged:
            yield StreamRecord(RecordType.END, digest.digest_size, digest.digest())
        else:
            self.changed.append(entry.path)
            yield StreamRecord(RecordType.CANCELLED)


def _open_file(path: Path) -> BinaryIO:
    # The path may have become a pipe, which would block, or a link to somewhere else.
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0)


def read_records(stream: BinaryIO) -> Iterator[StreamRecord]:
    """Yield the records of a stream up to the last; EOFError if it ends early."""
    while True:
        kind, number = RECORD.unpack(_read_exactly(stream, RECORD.size))
        carries = kind in (RecordType.DATA, RecordType.END)
        if kind not in set(RecordType) or (carries and number > MAX_CHUNK):
            raise LaunchError(f"received an invalid record (kind {kind}, {number} bytes)")
        yield StreamRecord(RecordType(kind), number, _read_exactly(stream, number) if carries else b"")
        if kind == RecordType.DONE:
            return


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the files end too early")
    return data
