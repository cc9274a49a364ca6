"""List the data sets of ``--dataset`` and their properties."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer.config.choices import format_value
from trainer.errors import UsageError
from trainer.models import ImageShape


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSetInfo:
    """Properties of a data set; None if they depend on the command line or on the files."""

    image_shape: ImageShape | None = None
    """Default: --image-shape, or the shape that the network was made for."""
    resizable: bool = False
    """True if --image-shape may change it."""
    channels: tuple[int, ...] = ()
    """Numbers of channels that --image-shape may have; empty for any."""
    classes: int | None = None
    """Default: --num-classes, or the network's number, or the number of directories."""
    page: str = ""
    """Web page of the download."""


DATA_SETS: Final[Mapping[str, DataSetInfo]] = {
    "digits": DataSetInfo(image_shape=(1, 28, 28), resizable=True, classes=10),
    "mnist": DataSetInfo(
        image_shape=(1, 28, 28),
        classes=10,
        page="http://yann.lecun.com/exdb/mnist/ or its mirror https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    "fashion-mnist": DataSetInfo(
        image_shape=(1, 28, 28), classes=10, page="https://github.com/zalandoresearch/fashion-mnist#get-the-data"
    ),
    "cifar10": DataSetInfo(image_shape=(3, 32, 32), classes=10, page="https://www.cs.toronto.edu/~kriz/cifar.html"),
    "folder": DataSetInfo(resizable=True, channels=(1, 3)),
    "synthetic": DataSetInfo(resizable=True),
}


def check_channels(dataset: str, image_shape: ImageShape) -> None:
    """Raise UsageError unless the data set can have images with these channels."""
    channels = DATA_SETS[dataset].channels
    if channels and image_shape[0] not in channels:
        allowed = " or ".join(map(str, channels))
        raise UsageError(f"--image-shape of {dataset} must have {allowed} channels, got {format_value(image_shape)}")
