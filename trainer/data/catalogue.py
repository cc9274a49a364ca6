"""The data sets that ``--dataset`` knows: what is known of each before a file is opened."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trainer.choices import shown
from trainer.errors import UsageError
from trainer.models import ImageShape


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A data set's properties; what is None depends on the command line or on the files."""

    image_shape: ImageShape | None = None
    """Left out: --image-shape, or what the network was made for."""
    resizable: bool = False
    """Whether --image-shape may ask for another one."""
    channels: tuple[int, ...] = ()
    """What it may ask for; empty: any number."""
    classes: int | None = None
    """Left out: --num-classes, or what the network was made for, or as many as there are directories."""
    page: str = ""
    """Where people get it."""


DATA_SETS: Final[Mapping[str, Known]] = {
    "digits": Known(image_shape=(1, 28, 28), resizable=True, classes=10),
    "mnist": Known(
        image_shape=(1, 28, 28),
        classes=10,
        page="http://yann.lecun.com/exdb/mnist/ or its mirror https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    "fashion-mnist": Known(
        image_shape=(1, 28, 28), classes=10, page="https://github.com/zalandoresearch/fashion-mnist#get-the-data"
    ),
    "cifar10": Known(image_shape=(3, 32, 32), classes=10, page="https://www.cs.toronto.edu/~kriz/cifar.html"),
    "folder": Known(resizable=True, channels=(1, 3)),
    "synthetic": Known(resizable=True),
}


def check_channels(dataset: str, image_shape: ImageShape) -> None:
    """Raise UsageError unless the data set has images of so many channels."""
    channels = DATA_SETS[dataset].channels
    if channels and image_shape[0] not in channels:
        allowed = " or ".join(map(str, channels))
        raise UsageError(f"--image-shape of {dataset} must have {allowed} channels, got {shown(image_shape)}")
