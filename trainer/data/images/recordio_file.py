"""Read a RecordIO file by byte ranges, and find its records: by its index, or in one pass without one.

A file in S3 is read by range requests, and must have an index.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.data.file_io import exists, read
from trainer.data.images.recordio_format import (
    HEAD_BYTES,
    HEADER,
    LAST,
    PREFIX,
    WHOLE,
    parse_image,
    parse_part,
    parse_record,
)
from trainer.data.images.s3_object import S3Object
from trainer.errors import TrainerError

INDEX_SUFFIX: Final = ".idx"


class ByteRanges(Protocol):
    """A file that is read by ranges."""

    @property
    def place(self) -> str:
        """Return path or URL, for error messages."""

    @property
    def size(self) -> int:
        """Return the number of bytes."""

    def read(self, begin: int, size: int) -> bytes:
        """Return the bytes of a range, less at the end of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalFile:
    """An open file of this machine."""

    place: str
    descriptor: int
    size: int

    def read(self, begin: int, size: int) -> bytes:
        """Return the bytes of a range, less at the end of the file."""
        try:
            return os.pread(self.descriptor, size, begin)
        except OSError as error:
            raise TrainerError(f"cannot read {self.place}: {error.strerror}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordFile:
    """An open file, and the byte ranges of its records."""

    content: ByteRanges
    offsets: NDArray[np.int64]
    """Offset of each record in the file."""
    ends: NDArray[np.int64]
    """Offset of each record's successor in the file, or the file's size."""
    versions: tuple[str, ...] = ()
    """ETags of the file and its index, if they are in S3."""

    def record(self, index: int) -> bytes:
        """Read one record: exactly the bytes of its own range."""
        begin, end = int(self.offsets[index]), int(self.ends[index])
        return parse_record(self.content.read(begin, end - begin), place=self.content.place, at=begin)

    def describe(self, index: int) -> str:
        """Return the place of a record, for error messages."""
        return f"at byte {self.offsets[index]} of {self.content.place}"

    def labels(self) -> NDArray[np.int64]:
        """Read the labels of all records from only their headers."""
        return np.array([self._label(index) for index in range(len(self.offsets))], np.int64)

    def _label(self, index: int) -> int:
        begin = int(self.offsets[index])
        head = self.content.read(begin, HEAD_BYTES)
        part = parse_part(head, place=self.content.place, at=begin)
        complete = part.kind == WHOLE and min(part.end, len(head)) >= part.begin + HEADER.size
        record = head[part.begin : part.end] if complete else self.record(index)
        return parse_image(record, place=f"the record {self.describe(index)}").label


def open_records(path: Path, index: Path | None = None) -> RecordFile:
    """Open a file; its index is the file of the same name that ends in .idx, if there is one.

    Raises TrainerError if a file is missing or damaged, or an index does not match the file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        content = LocalFile(place=str(path), descriptor=descriptor, size=os.fstat(descriptor).st_size)
    except OSError as error:
        raise TrainerError(f"cannot read {path}: {error.strerror}") from error
    beside = path.with_suffix(INDEX_SUFFIX)
    if index is None and exists(beside):
        index = beside
    offsets = _scan(content) if index is None else _parse_index(read(index), content, place=str(index))
    return _record_file(content, offsets, place=str(index or path))


def open_records_in_s3(url: str, index: str | None = None, *, client: Any) -> RecordFile:
    """Open an object; its index is the object of the same name that ends in .idx.

    Raises TrainerError if an object is missing or damaged, or an index is not the object's.
    """
    content = S3Object(url, client=client)
    place = index or url_of_index(url)
    listed = S3Object(place, client=client)
    offsets = _parse_index(listed.read(0, listed.size), content, place=place)
    return _record_file(content, offsets, place=place, versions=(content.version, listed.version))


def url_of_index(url: str) -> str:
    """Return the URL with the suffix of an index. No path: ``//`` and ``/./`` are parts of a key."""
    folder, _, name = url.rpartition("/")
    return f"{folder}/{name.rpartition('.')[0] or name}{INDEX_SUFFIX}"


def _record_file(
    content: ByteRanges, offsets: NDArray[np.int64], *, place: str, versions: tuple[str, ...] = ()
) -> RecordFile:
    """Return the file with the ranges of its records; ``place`` is where they were found."""
    if not len(offsets):
        raise TrainerError(f"{place} holds no records")
    bounds = np.append(np.unique(offsets), content.size)
    ends = bounds[np.searchsorted(bounds, offsets, side="right")]
    return RecordFile(content=content, offsets=offsets, ends=ends, versions=versions)


def _parse_index(text: bytes, content: ByteRanges, *, place: str) -> NDArray[np.int64]:
    """Return the offsets in an index: lines with a record's key and its offset."""
    offsets = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if len(words) != 2 or not words[1].isdigit():
            shown = line[:40].decode(errors="replace")
            raise TrainerError(f"{place} is damaged, line {number} must be a key and an offset, got {shown!r}")
        if int(words[1]) >= content.size:
            raise TrainerError(
                f"{place} is not the index of {content.place}, byte {int(words[1])} is after its end at {content.size}"
            )
        offsets.append(int(words[1]))
    return np.array(offsets, np.int64)


def _scan(content: ByteRanges) -> NDArray[np.int64]:
    """Return the offsets of all records, from one header to the next."""
    offsets, offset, inside = [], 0, False
    while offset < content.size:
        part = parse_part(content.read(offset, PREFIX.size), place=content.place, at=offset)
        if not inside:
            offsets.append(offset)
        inside = part.kind not in (WHOLE, LAST)
        offset += part.next
    if offset > content.size:
        raise TrainerError(
            f"{content.place} is truncated, its last record ends at byte {offset}, the file at {content.size}"
        )
    return np.array(offsets, np.int64)
