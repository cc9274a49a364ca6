"""Files on their way from node to node: a stream of records, each file closed by the digest of what was sent.

What a file holds is read once, while it is sent. A file that is not what the manifest says it is, or changes
meanwhile, is called off: nobody keeps it, and the launcher looks again.
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
"""What is handed on at once: many small files, or a part of a large one."""
LONGEST_CHUNK = 1 << 20
NO_FILE_ANY_MORE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ESTALE)
"""What reading comes to when the path has become something else since it was looked at."""


class RecordType(enum.IntEnum):
    """What a record is; its number means something else for each."""

    FILE = 1
    """A file begins: its number in the manifest."""
    DATA = 2
    """So many bytes of it follow."""
    END = 3
    """It is complete: so many bytes of digest follow."""
    CALLED_OFF = 4
    """It is not to be kept."""
    DONE = 5
    """Nothing more comes."""
    ALIVE = 6
    """No part of any file: the sender works on what the receiver does not need."""


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One piece of the stream."""

    kind: RecordType
    number: int = 0
    data: bytes = b""

    def encode(self) -> bytes:
        """Its bytes."""
        return RECORD.pack(self.kind, self.number) + self.data


def new_digest() -> "hashlib._Hash":
    """What a file's bytes go through on both sides."""
    return hashlib.sha256()


class SourceStream:
    """The stream of some files of a directory, block by block."""

    def __init__(self, source: Path, manifest: Manifest, numbers: Sequence[int]) -> None:
        self.changed: list[str] = []
        """Files that were called off."""
        self._source = source
        self._manifest = manifest
        self._blocks = self._gather(numbers)

    def next_block(self) -> bytes:
        """The next bytes; none at the end. Reads the disk."""
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
                # No further than it was long: what writes to it may be as fast as we are.
                while size <= entry.size and (data := file.read(CHUNK)):
                    size += len(data)
                    digest.update(data)
                    yield StreamRecord(RecordType.DATA, len(data), data)
                unchanged = is_unchanged(os.fstat(file.fileno()), entry)
        except OSError as error:
            if error.errno not in NO_FILE_ANY_MORE:
                raise LaunchError(f"cannot read {path}: {error.strerror}") from error
            unchanged = False
        if unchanged:
            yield StreamRecord(RecordType.END, digest.digest_size, digest.digest())
        else:
            self.changed.append(entry.path)
            yield StreamRecord(RecordType.CALLED_OFF)


def _open_file(path: Path) -> BinaryIO:
    # What was a file may have become a pipe, which would be waited for, or a link to somewhere else.
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0)


def read_records(stream: BinaryIO) -> Iterator[StreamRecord]:
    """The records of a stream up to the last; EOFError when it ends before."""
    while True:
        kind, number = RECORD.unpack(_read_exactly(stream, RECORD.size))
        carries = kind in (RecordType.DATA, RecordType.END)
        if kind not in set(RecordType) or (carries and number > LONGEST_CHUNK):
            raise LaunchError(f"received what is no part of a file (kind {kind}, {number} bytes)")
        yield StreamRecord(RecordType(kind), number, _read_exactly(stream, number) if carries else b"")
        if kind == RecordType.DONE:
            return


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("the files end too early")
    return data
