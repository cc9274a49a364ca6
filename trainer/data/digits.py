"""Load the digits that come with the trainer; see bundled/README.md."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.data.dataset import Dataset, InMemory, check_memory, make_dataset
from trainer.data.idx import read_idx
from trainer.errors import TrainerError
from trainer.models import ImageShape

DIRECTORY: Final = Path(__file__).resolve().parent / "bundled"
FOR_TRAINING: Final = 1437
"""Number of training images; the other 360 are for validation. The files are in random order."""
NUM_CLASSES: Final = 10


def load_digits(image_shape: ImageShape, *, directory: Path = DIRECTORY) -> Dataset:
    """Read the 8x8 digits and scale them to this (channels, height, width); all channels are equal.

    Raises TrainerError if the machine's memory is too small.
    """
    images = read_idx(directory / "digits-images-idx3-ubyte.gz", dimensions=3)
    labels = read_idx(directory / "digits-labels-idx1-ubyte.gz", dimensions=1).astype(np.int64)
    if len(images) != len(labels):
        raise TrainerError(f"{directory} holds {len(images)} images, but {len(labels)} labels")
    check_memory(image_shape, train=FOR_TRAINING, validation=len(images) - FOR_TRAINING)
    channels, height, width = image_shape
    scaled = np.rint(scale(images.astype(np.float32), height=height, width=width)).astype(np.uint8)
    pixels = np.repeat(scaled[:, None], channels, axis=1)
    return make_dataset(
        InMemory(pixels=pixels[:FOR_TRAINING], labels=labels[:FOR_TRAINING]),
        InMemory(pixels=pixels[FOR_TRAINING:], labels=labels[FOR_TRAINING:]),
        num_classes=NUM_CLASSES,
        source=directory,
    )


def scale(images: NDArray[np.float32], *, height: int, width: int) -> NDArray[np.float32]:
    """Scale images of shape (..., rows, columns) by linear interpolation."""
    rows = _interpolation(images.shape[-2], height)
    columns = _interpolation(images.shape[-1], width)
    return (rows @ images @ columns.T).astype(np.float32, copy=False)


def _interpolation(source: int, target: int) -> NDArray[np.float32]:
    """Return the weight of each source pixel in each target pixel, with pixel centers aligned."""
    centers = (np.arange(target) + 0.5) * source / target - 0.5
    distances = np.abs(centers.clip(0, source - 1)[:, None] - np.arange(source))
    return (1 - distances).clip(0).astype(np.float32)
