"""Load RecordIO files, which MXNet's im2rec writes: one for training, one for validation, each with an index.

They are on this machine or in S3. The label of a record in S3 becomes known when the record is read: reading the header
of each at the start would take a request for each.
"""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from trainer.data.dataset import Dataset
from trainer.data.images.decoding import (
    EncodedSamples,
    decode_threads,
    import_pillow,
    make_dataset_of_images,
    start_threads,
)
from trainer.data.images.recordio_file import RecordFile, open_records, open_records_in_s3
from trainer.data.images.recordio_format import parse_image
from trainer.data.images.s3_object import connect
from trainer.errors import TrainerError, UsageError
from trainer.models import ImageShape
from trainer.s3 import SCHEME

NOT_READ: Final = -1
"""Label of a record in S3 that has not been read."""
MIN_REQUESTS: Final = 32
"""Smallest number of concurrent requests of a rank to S3."""


@dataclass(frozen=True, slots=True)
class RecordPaths:
    """A file and its index; both are paths, or both are URLs of S3."""

    records: str
    index: str | None = None
    """Default: the file's name with .idx; without such a file, the records are searched."""

    @property
    def in_s3(self) -> bool:
        """Return True if both are in S3."""
        return self.records.startswith(SCHEME)


@dataclass(frozen=True, slots=True)
class S3Readers:
    """Threads that read both files in S3, and a client with a connection for each of them."""

    client: Any
    threads: ThreadPoolExecutor

    @classmethod
    def start(cls) -> "S3Readers":
        """Start the threads: more than cores, as one record is decoded while others are on their way."""
        count = max(MIN_REQUESTS, decode_threads(os.environ))
        return cls(connect(connections=count), start_threads(count))


@dataclass(frozen=True, kw_only=True, slots=True)
class Records(EncodedSamples):
    """Samples that are records of one file; each is read by its own byte range."""

    file: RecordFile = field(repr=False)

    def open(self, sample: int) -> io.BytesIO:
        """Read the encoded image of a sample."""
        place = f"the record {self.describe(sample)}"
        return io.BytesIO(parse_image(self.file.record(sample), place=place).image)

    def describe(self, sample: int) -> str:
        """Return file and offset of a sample."""
        return self.file.describe(sample)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordsInS3(Records):
    """Records of an object in S3, each of which is a request; reading a record sets its label."""

    num_classes: int

    def open(self, sample: int) -> io.BytesIO:
        """Read the encoded image and the label of a sample. Raises TrainerError if there is no such class."""
        place = f"the record {self.describe(sample)}"
        label, image = parse_image(self.file.record(sample), place=place)
        if label >= self.num_classes:
            raise TrainerError(
                f"{place} has the label {label}, must be below {self.num_classes}, the number of classes"
            )
        self.labels[sample] = label
        return io.BytesIO(image)


def load_recordio(
    train: RecordPaths, validation: RecordPaths, image_shape: ImageShape, *, num_classes: int | None = None
) -> Dataset:
    """Open both files. There are num_classes classes if the training file is in S3, else its highest label plus one.

    Raises TrainerError if a file is missing or damaged, or validation has a class that training lacks.
    """
    import_pillow("Image")
    if train.in_s3 and num_classes is None:
        raise UsageError("--num-classes must be given with --data-train in S3, where labels are read with their images")
    readers = S3Readers.start() if train.in_s3 or validation.in_s3 else None
    first = _open(train, image_shape, readers, num_classes=num_classes or 0)
    num_classes = (num_classes or 0) if train.in_s3 else int(first.labels.max()) + 1
    second = _open(validation, image_shape, readers, num_classes=num_classes)
    if (highest := int(second.labels.max())) >= num_classes:
        limit = (
            f"--num-classes is {num_classes}" if train.in_s3 else f"the highest of {train.records} is {num_classes - 1}"
        )
        raise TrainerError(f"{validation.records} has the label {highest}, {limit}")
    data = make_dataset_of_images(first, second, num_classes=num_classes)
    return replace(data, versions=first.file.versions + second.file.versions)


def _open(paths: RecordPaths, image_shape: ImageShape, readers: S3Readers | None, *, num_classes: int) -> Records:
    """Open a file; ``num_classes`` limits the labels of records in S3."""
    if readers is None or not paths.in_s3:
        index = Path(paths.index).expanduser() if paths.index else None
        file = open_records(Path(paths.records).expanduser(), index)
        return Records(file=file, labels=file.labels(), image_shape=image_shape)
    file = open_records_in_s3(paths.records, paths.index, client=readers.client)
    return RecordsInS3(
        file=file,
        labels=np.full(len(file.offsets), NOT_READ, np.int64),
        image_shape=image_shape,
        num_classes=num_classes,
        threads=readers.threads,
    )
