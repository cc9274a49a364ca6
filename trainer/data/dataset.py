"""Define a dataset, independent of where its images are stored."""

import math
import os
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.config.choices import format_value
from trainer.data import Labels, Pixels
from trainer.data.resized_crop import ResizedCrops
from trainer.errors import TrainerError
from trainer.models import ImageShape

CHUNK_IMAGES: Final = 1000
"""Images per chunk when summing squared pixel values, to bound memory."""


class Samples(Protocol):
    """Images with their labels."""

    @property
    def labels(self) -> Labels:
        """Return the labels of all images; labels of images in S3 are negative until the image has been read."""

    def read(self, indices: NDArray[np.int64], crops: ResizedCrops | None = None) -> Pixels:
        """Return these images, all of one size, at least the dataset's ``image_shape``.

        With ``crops``, samples that are decoded when they are read return that part of each, in that size.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class InMemory:
    """Samples held in memory."""

    pixels: Pixels = field(repr=False)
    labels: Labels = field(repr=False)

    def read(self, indices: NDArray[np.int64], crops: ResizedCrops | None = None) -> Pixels:
        """Return a copy of these images."""
        return self.pixels[indices]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """Training samples, and validation samples that the network never trains on."""

    train: Samples
    validation: Samples
    image_shape: ImageShape
    num_classes: int
    class_names: tuple[str, ...] = ()
    """Names of the classes, if the dataset has them."""
    versions: tuple[str, ...] = ()
    """ETags of the files in S3. Ranks compare them, because labels in S3 are known only once they have been read."""
    mean: tuple[float, ...] = (0.0,)
    """Mean of each channel, or of all, in pixel values."""
    std: tuple[float, ...] = (1.0,)

    def describe_counts(self) -> str:
        """Describe the numbers of samples and classes."""
        train, validation = len(self.train.labels), len(self.validation.labels)
        return f"{train} training and {validation} validation samples of {self.num_classes} classes"


def check_memory(image_shape: ImageShape, *, train: int, validation: int) -> None:
    """Raise TrainerError if this many images do not fit into memory; call it before allocating.

    Linux allocates more memory than there is, and later kills the process that fills it.
    """
    needed = (train + validation) * math.prod(image_shape)
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > available:
        raise TrainerError(
            f"{train} training and {validation} validation images of {format_value(image_shape)} take at least "
            f"{needed / 2**30:,.1f} GiB of memory, this machine has {available / 2**30:,.1f} GiB"
        )


def make_dataset(train: InMemory, validation: InMemory, *, num_classes: int, source: object) -> Dataset:
    """Return both as a dataset, normalized by the training images' mean and standard deviation.

    Raises TrainerError with the ``source`` if images and labels do not match.
    """
    for samples in (train, validation):
        if len(samples.pixels) != len(samples.labels):
            raise TrainerError(f"{source} holds {len(samples.pixels)} images, but {len(samples.labels)} labels")
        if not len(samples.labels):
            raise TrainerError(f"{source} holds no images")
        if samples.labels.max() >= num_classes:
            raise TrainerError(
                f"{source} has the label {samples.labels.max()}, more than {num_classes} classes can have"
            )
    mean, std = _mean_and_std(train.pixels)
    _, channels, height, width = train.pixels.shape
    return Dataset(
        train=train,
        validation=validation,
        image_shape=(channels, height, width),
        num_classes=num_classes,
        mean=mean,
        std=std,
    )


def _mean_and_std(pixels: Pixels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, from integer sums, which are exact in any order."""
    axes = (0, 2, 3)
    count = pixels.size // pixels.shape[1]
    total = pixels.sum(axes, dtype=np.uint64)
    squares = np.zeros_like(total)
    for start in range(0, len(pixels), CHUNK_IMAGES):
        squares += np.square(pixels[start : start + CHUNK_IMAGES], dtype=np.uint32).sum(axes, dtype=np.uint64)
    mean = total / count
    std = np.sqrt(squares / count - mean**2)
    # A constant channel has a standard deviation of 0: do not divide by it.
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())
