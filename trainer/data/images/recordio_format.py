"""Parse and write the records of RecordIO, MXNet's file of images, and their image headers.

The format: dmlc-core's recordio.h and MXNet's image_recordio.h. A record is a magic number, a word with kind and
length, and that many bytes, padded to a multiple of four. Where its bytes contain the magic number, at a multiple of
four, the record is split into parts without it, so that a reader that starts anywhere finds the next record.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from trainer.errors import TrainerError

MAGIC: Final = struct.pack("<I", 0xCED7230A)
PREFIX: Final = struct.Struct("<4sI")
"""Magic number, and the word with the kind in 3 bits and the length in 29."""
HEADER: Final = struct.Struct("<IfQQ")
"""Number of labels that follow (0: none), label, key, and the key's higher bits."""
ALIGNMENT: Final = 4
LENGTH_BITS: Final = 29
MAX_BYTES: Final = 2**LENGTH_BITS - 1
WHOLE, FIRST, MIDDLE, LAST = range(4)
"""Kinds of parts."""
HEAD_BYTES: Final = PREFIX.size + HEADER.size + 4
"""Bytes that contain the label of a record without a split in its header."""


class Part(NamedTuple):
    """A record's part."""

    kind: int
    begin: int
    """Offset of its bytes."""
    end: int

    @property
    def next(self) -> int:
        """Return the offset of the next part."""
        return self.end + -self.end % ALIGNMENT


class ImageRecord(NamedTuple):
    """An encoded image and its label."""

    label: int
    image: bytes


def parse_part(content: bytes, offset: int = 0, *, place: str, at: int = 0) -> Part:
    """Parse the prefix at this offset of the content, which begins at byte ``at`` of the file ``place``."""
    prefix = content[offset : offset + PREFIX.size]
    if len(prefix) < PREFIX.size:
        raise TrainerError(f"{place} is truncated, the record at byte {at + offset} has no header")
    magic, word = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise TrainerError(
            f"{place} has no record at byte {at + offset}, {magic.hex()} is there instead of {MAGIC.hex()}"
        )
    begin = offset + PREFIX.size
    return Part(word >> LENGTH_BITS, begin, begin + (word & MAX_BYTES))


def parse_record(content: bytes, *, place: str, at: int = 0) -> bytes:
    """Return the bytes of the record at the start of the content, its parts joined.

    Raises TrainerError if it is damaged or truncated.
    """
    parts: list[bytes] = []
    offset = 0
    while True:
        part = parse_part(content, offset, place=place, at=at)
        if part.end > len(content):
            raise TrainerError(f"{place} is truncated or damaged, the record at byte {at} does not end where it should")
        if part.kind not in ((MIDDLE, LAST) if parts else (WHOLE, FIRST)):
            raise TrainerError(f"{place} is damaged, byte {at + offset} is not where the next part of a record begins")
        parts.append(content[part.begin : part.end])
        if part.kind in (WHOLE, LAST):
            return MAGIC.join(parts)
        offset = part.next


def parse_image(record: bytes, *, place: str) -> ImageRecord:
    """Split a record into label and image; TrainerError unless it has one label, a whole number of at least 0."""
    if len(record) < HEADER.size:
        raise TrainerError(f"{place} holds no image, {len(record)} bytes are less than an image's header")
    count, label, _, _ = HEADER.unpack_from(record)
    begin = HEADER.size + 4 * count
    if count > 1:
        raise TrainerError(f"{place} has {count} labels, the trainer classifies images with one")
    if count and len(record) < begin:
        raise TrainerError(f"{place} is truncated, its label is missing")
    if count:
        [label] = struct.unpack_from("<f", record, HEADER.size)
    if not (label >= 0 and float(label).is_integer()):
        raise TrainerError(f"{place} has the label {label:g}, must be a whole number of at least 0")
    return ImageRecord(int(label), record[begin:])


def pack_image(*, key: int, label: int, image: bytes) -> bytes:
    """Return an image as a record's bytes."""
    return HEADER.pack(0, label, key, 0) + image


def write_record(file: BinaryIO, record: bytes) -> None:
    """Append a record to a file, split where it contains the magic number."""
    if len(record) > MAX_BYTES:
        raise TrainerError(f"a record has at most {MAX_BYTES} bytes, got {len(record)}")
    parts = list(_split(record))
    for number, part in enumerate(parts):
        first, last = number == 0, number == len(parts) - 1
        kind = WHOLE if first and last else FIRST if first else LAST if last else MIDDLE
        file.write(PREFIX.pack(MAGIC, kind << LENGTH_BITS | len(part)) + part + bytes(-len(part) % ALIGNMENT))


def _split(record: bytes) -> Iterator[bytes]:
    begin = position = 0
    while (position := record.find(MAGIC, position)) >= 0:
        if position % ALIGNMENT:
            position += 1
            continue
        yield record[begin:position]
        begin = position = position + len(MAGIC)
    yield record[begin:]
