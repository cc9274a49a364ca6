"""What a data set is, wherever its images lie."""

import math
import os
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.choices import shown
from trainer.data import Labels, Pixels
from trainer.errors import TrainerError
from trainer.models import ImageShape

CHUNK: Final = 1000
"""Images whose squares are in memory at the same time."""


class Samples(Protocol):
    """Images with their labels."""

    @property
    def labels(self) -> Labels:
        """Of all images."""

    def read(self, indices: NDArray[np.int64]) -> Pixels:
        """Return these images: all of one size, at least that of the data set's ``image_shape``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InMemory:
    """Samples that are there already."""

    pixels: Pixels = field(repr=False)
    labels: Labels = field(repr=False)

    def read(self, indices: NDArray[np.int64]) -> Pixels:
        """Return a copy of these images."""
        return self.pixels[indices]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSet:
    """What is trained on, and what the network must never see in training."""

    train: Samples
    held_out: Samples
    image_shape: ImageShape
    classes: int
    names: tuple[str, ...] = ()
    """Of the classes, where the files say them."""
    mean: tuple[float, ...] = (0.0,)
    """Of each channel, or of all; in units of pixel values."""
    deviation: tuple[float, ...] = (1.0,)

    @property
    def counts(self) -> str:
        """How much there is, in words."""
        train, held_out = len(self.train.labels), len(self.held_out.labels)
        return f"{train} training and {held_out} validation samples of {self.classes} classes"


def check_memory(image_shape: ImageShape, *, train: int, held_out: int) -> None:
    """Raise TrainerError where the bytes of so many images are more than the machine has; before numpy is asked.

    Arrays of more than the machine has may well be made, and the kernel then kills who fills them.
    """
    needed = (train + held_out) * math.prod(image_shape)
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise TrainerError(
            f"{train} training and {held_out} validation images of {shown(image_shape)} take at least "
            f"{needed / 2**30:,.1f} GiB of memory, this machine has {there / 2**30:,.1f} GiB"
        )


def in_memory(train: InMemory, held_out: InMemory, *, classes: int, source: object) -> DataSet:
    """Return both as a data set, normalised by the training images' own mean and deviation.

    Raises TrainerError, which names the ``source``, when images and labels do not belong together.
    """
    for samples in (train, held_out):
        if len(samples.pixels) != len(samples.labels):
            raise TrainerError(f"{source} holds {len(samples.pixels)} images, but {len(samples.labels)} labels")
        if not len(samples.labels):
            raise TrainerError(f"{source} holds no images")
        if samples.labels.max() >= classes:
            raise TrainerError(f"{source} has the label {samples.labels.max()}, more than {classes} classes can have")
    mean, deviation = _measure(train.pixels)
    _, channels, height, width = train.pixels.shape
    return DataSet(
        train=train,
        held_out=held_out,
        image_shape=(channels, height, width),
        classes=classes,
        mean=mean,
        deviation=deviation,
    )


def _measure(pixels: Pixels) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel; sums of whole numbers, so that no order rounds them."""
    axes = (0, 2, 3)
    count = pixels.size // pixels.shape[1]
    total = pixels.sum(axes, dtype=np.uint64)
    squares = np.zeros_like(total)
    for start in range(0, len(pixels), CHUNK):
        squares += np.square(pixels[start : start + CHUNK], dtype=np.uint32).sum(axes, dtype=np.uint64)
    mean = total / count
    deviation = np.sqrt(squares / count - mean**2)
    # A channel of one value has none to be measured in.
    return tuple(mean.tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())
