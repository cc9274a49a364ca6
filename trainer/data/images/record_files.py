"""Read a RecordIO file by byte ranges, and find its records: by its index, or in one pass without one."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.data.images.records import HEAD_BYTES, HEADER, LAST, PREFIX, WHOLE, parse_image, parse_part, parse_record
from trainer.data.reading import exists, read
from trainer.errors import TrainerError

INDEX_SUFFIX: Final = ".idx"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordFile:
    """An open file, and the byte ranges of its records."""

    path: Path
    descriptor: int
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Beginning of each record's successor in the file, or the file's size."""

    def record(self, number: int) -> bytes:
        """Read one record: exactly the bytes of its own range."""
        begin, end = int(self.begins[number]), int(self.ends[number])
        content = _read_range(self.descriptor, begin, end - begin, path=self.path)
        return parse_record(content, place=str(self.path), at=begin)

    def describe(self, number: int) -> str:
        """Return the place of a record, for error messages."""
        return f"at byte {self.begins[number]} of {self.path}"

    def labels(self) -> NDArray[np.int64]:
        """Read the labels of all records from only their headers."""
        return np.array([self._label(number) for number in range(len(self.begins))], np.int64)

    def _label(self, number: int) -> int:
        begin = int(self.begins[number])
        head = _read_range(self.descriptor, begin, HEAD_BYTES, path=self.path)
        part = parse_part(head, place=str(self.path), at=begin)
        complete = part.kind == WHOLE and min(part.end, len(head)) >= part.begin + HEADER.size
        record = head[part.begin : part.end] if complete else self.record(number)
        return parse_image(record, place=f"the record {self.describe(number)}").label


def open_records(path: Path, index: Path | None = None) -> RecordFile:
    """Open a file; its index is the file of the same name that ends in .idx, if there is one.

    Raises TrainerError if a file is missing or damaged, or an index does not match the file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        size = os.fstat(descriptor).st_size
    except OSError as error:
        raise TrainerError(f"cannot read {path}, {error.strerror}") from error
    beside = path.with_suffix(INDEX_SUFFIX)
    if index is None and exists(beside):
        index = beside
    begins = _scan(descriptor, size, path=path) if index is None else _read_index(index, size, path=path)
    if not len(begins):
        raise TrainerError(f"{index or path} holds no records")
    bounds = np.append(np.unique(begins), size)
    ends = bounds[np.searchsorted(bounds, begins, side="right")]
    return RecordFile(path=path, descriptor=descriptor, begins=begins, ends=ends)


def _read_index(index: Path, size: int, *, path: Path) -> NDArray[np.int64]:
    """Return the offsets in an index: lines with a record's key and its offset."""
    begins = []
    for number, line in enumerate(read(index).splitlines(), start=1):
        words = line.split()
        if len(words) != 2 or not words[1].isdigit():
            shown = line[:40].decode(errors="replace")
            raise TrainerError(f"{index} is damaged, line {number} must be a key and an offset, got {shown!r}")
        if int(words[1]) >= size:
            raise TrainerError(f"{index} is not the index of {path}, byte {int(words[1])} is after its end at {size}")
        begins.append(int(words[1]))
    return np.array(begins, np.int64)


def _scan(descriptor: int, size: int, *, path: Path) -> NDArray[np.int64]:
    """Return the offsets of all records, from one header to the next."""
    begins, offset, inside = [], 0, False
    while offset < size:
        prefix = _read_range(descriptor, offset, PREFIX.size, path=path)
        part = parse_part(prefix, place=str(path), at=offset)
        if not inside:
            begins.append(offset)
        inside = part.kind not in (WHOLE, LAST)
        offset += part.next
    if offset > size:
        raise TrainerError(f"{path} is truncated, its last record ends at byte {offset}, the file at {size}")
    return np.array(begins, np.int64)


def _read_range(descriptor: int, offset: int, size: int, *, path: Path) -> bytes:
    try:
        return os.pread(descriptor, size, offset)
    except OSError as error:
        raise TrainerError(f"cannot read {path}, {error.strerror}") from error
