"""List the datasets of ``--dataset`` and their properties."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer.config.choices import format_value, option_name
from trainer.errors import UsageError
from trainer.models import ImageShape
from trainer.s3 import SCHEME


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetInfo:
    """Properties of a dataset; None if they depend on the command line or on the files."""

    image_shape: ImageShape | None = None
    """Default: --image-shape, or the shape that the network was made for."""
    resizable: bool = False
    """True if --image-shape may change it."""
    channels: tuple[int, ...] = ()
    """Numbers of channels that --image-shape may have; empty for any."""
    encoded: bool = False
    """True for encoded images of any size, which are decoded when they are read."""
    num_classes: int | None = None
    """Default: --num-classes, or the network's number, or the number in the files."""
    page: str = ""
    """Web page of the download."""


DATASETS: Final[Mapping[str, DatasetInfo]] = {
    "digits": DatasetInfo(image_shape=(1, 28, 28), resizable=True, num_classes=10),
    "mnist": DatasetInfo(
        image_shape=(1, 28, 28),
        num_classes=10,
        page="http://yann.lecun.com/exdb/mnist/ or its mirror https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    "fashion-mnist": DatasetInfo(
        image_shape=(1, 28, 28), num_classes=10, page="https://github.com/zalandoresearch/fashion-mnist#get-the-data"
    ),
    "cifar10": DatasetInfo(image_shape=(3, 32, 32), num_classes=10, page="https://www.cs.toronto.edu/~kriz/cifar.html"),
    "folder": DatasetInfo(resizable=True, channels=(1, 3), encoded=True),
    "recordio": DatasetInfo(resizable=True, channels=(1, 3), encoded=True),
    "synthetic": DatasetInfo(resizable=True),
}


S3_OBJECT: Final = re.compile(r"s3://[^/\s]+(/[^/\s]+)+")


def check_channels(dataset: str, image_shape: ImageShape) -> None:
    """Raise UsageError unless the dataset can have images with these channels."""
    channels = DATASETS[dataset].channels
    if channels and image_shape[0] not in channels:
        allowed = " or ".join(map(str, channels))
        raise UsageError(f"--image-shape of {dataset} must have {allowed} channels, got {format_value(image_shape)}")


def check_record_files(dataset: str, files: Mapping[str, str | None]) -> None:
    """Raise UsageError unless recordio, and only recordio, has its files; ``files`` maps settings to paths."""
    file_settings = [name for name, path in files.items() if path is not None]
    if dataset != "recordio":
        if file_settings:
            raise UsageError(f"{option_name(file_settings[0])} requires --dataset recordio, got --dataset {dataset}")
        return
    for name, path in files.items():
        if path is None and not name.endswith("_idx"):
            raise UsageError(f"{option_name(name)} must be given with --dataset recordio, such as FILE.rec")
        if path is not None and path.startswith(SCHEME) and not S3_OBJECT.fullmatch(path):
            raise UsageError(f"{option_name(name)} must be a file or s3://BUCKET/KEY, got {path}")
    for name in ("data_train", "data_val"):
        records, index = files.get(name), files.get(f"{name}_idx")
        if records and index and records.startswith(SCHEME) != index.startswith(SCHEME):
            raise UsageError(f"{option_name(name)}-idx must be in S3 if its file is, and else not, got {index}")
