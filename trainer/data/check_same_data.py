"""Check that all ranks have the same data: with different data their step counts differ, and they would hang."""

import zlib
from typing import NamedTuple

from trainer.data.dataset import Dataset
from trainer.distributed.all_gather import SupportsAllReduce, all_gather
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.errors import TrainerError


class Checksums(NamedTuple):
    """CRC-32 of a dataset's labels, class names and files in S3."""

    train_labels: float
    validation_labels: float
    class_names: float
    versions: float


def check_same_data(backend: SupportsAllReduce, data: Dataset, *, dp: DataParallelGroup, source: str) -> None:
    """Raise TrainerError on every rank unless all ranks have the same labels and class names."""
    checksums = Checksums(
        train_labels=zlib.crc32(data.train.labels.tobytes()),
        validation_labels=zlib.crc32(data.validation.labels.tobytes()),
        class_names=zlib.crc32("/".join(data.class_names).encode()),
        versions=zlib.crc32("/".join(data.versions).encode()),
    )
    if len(set(all_gather(backend, checksums, dp=dp))) > 1:
        raise TrainerError(
            f"{source} is not the same on all ranks, here it has {data.describe_counts()}: "
            "copy the same files to every node"
        )
