"""Load RecordIO files, which MXNet's im2rec writes: one for training, one for validation, each with an index."""

import io
from dataclasses import dataclass, field
from pathlib import Path

from trainer.data.images.decoding import EncodedSamples, import_pillow, make_data_set_of_images
from trainer.data.images.record_files import RecordFile, open_records
from trainer.data.images.records import parse_image
from trainer.data.samples import DataSet
from trainer.errors import TrainerError
from trainer.models import ImageShape


@dataclass(frozen=True, slots=True)
class RecordPaths:
    """A file and its index."""

    records: Path
    index: Path | None = None
    """Default: the file's name with .idx; without such a file, the records are searched."""


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


def load_recordio(train: RecordPaths, validation: RecordPaths, image_shape: ImageShape) -> DataSet:
    """Read the labels of both files; the highest label of the first determines the number of classes.

    Raises TrainerError if a file is missing or damaged, or validation has a class that training lacks.
    """
    import_pillow("Image")
    parts = [_open(paths, image_shape) for paths in (train, validation)]
    classes, highest = (int(part.labels.max()) + 1 for part in parts)
    if highest > classes:
        raise TrainerError(
            f"{validation.records} has the label {highest - 1}, the highest of {train.records} is {classes - 1}"
        )
    return make_data_set_of_images(*parts, classes=classes)


def _open(paths: RecordPaths, image_shape: ImageShape) -> Records:
    file = open_records(paths.records, paths.index)
    return Records(file=file, labels=file.labels(), image_shape=image_shape)
