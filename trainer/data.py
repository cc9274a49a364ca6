"""The images: the digits that come with the trainer, or made-up ones for measurements."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.errors import TrainerError
from trainer.idx import read_idx

Images = NDArray[np.float32]
"""Shape (samples, channels, height, width)."""
Labels = NDArray[np.int64]

DATASETS: Final = Path(__file__).resolve().parent / "datasets"
DIGITS_FOR_TRAINING: Final = 1437
"""The other 360 are held out. The files are in random order, see datasets/README.md."""
CLASSES: Final = 10
SYNTHETIC_SAMPLES: Final = 2000
SYNTHETIC_HELD_OUT: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Samples:
    """Images with their labels."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSet:
    """What is trained on, and what the network must never see in training."""

    train: Samples
    held_out: Samples


def load_digits(image_shape: tuple[int, int, int], *, directory: Path = DATASETS) -> DataSet:
    """Read the 8x8 digits and enlarge them to what the network takes."""
    images = read_idx(directory / "digits-images-idx3-ubyte.gz", dimensions=3)
    labels = read_idx(directory / "digits-labels-idx1-ubyte.gz", dimensions=1).astype(np.int64)
    if len(images) != len(labels):
        raise TrainerError(f"{directory} holds {len(images)} images, but {len(labels)} labels")
    channels, height, width = image_shape
    enlarged = enlarge(images.astype(np.float32) / np.float32(255), height=height, width=width)
    return _split(np.repeat(enlarged[:, None], channels, axis=1), labels, train=DIGITS_FOR_TRAINING)


def make_synthetic(image_shape: tuple[int, int, int], *, seed: int = 0) -> DataSet:
    """Make up a random pattern for each class, and noisy images of it: the same ones for a seed."""
    generator = np.random.default_rng(seed)
    samples = SYNTHETIC_SAMPLES + SYNTHETIC_HELD_OUT
    labels = generator.integers(CLASSES, size=samples)
    patterns = generator.standard_normal((CLASSES, *image_shape), np.float32)
    noise = generator.standard_normal((samples, *image_shape), np.float32)
    # The values then spread as those of the digits do.
    images = np.float32(0.35) * patterns[labels] + np.float32(0.15) * noise
    return _split(images, labels, train=SYNTHETIC_SAMPLES)


def enlarge(images: Images, *, height: int, width: int) -> Images:
    """Scale images of shape (samples, rows, columns) by linear interpolation."""
    rows = _interpolation(images.shape[1], height)
    columns = _interpolation(images.shape[2], width)
    return (rows @ images @ columns.T).astype(np.float32, copy=False)


def _interpolation(source: int, target: int) -> NDArray[np.float32]:
    """Weight of each source pixel in each target pixel, pixel centres aligned."""
    centres = (np.arange(target) + 0.5) * source / target - 0.5
    distances = np.abs(centres.clip(0, source - 1)[:, None] - np.arange(source))
    return (1 - distances).clip(0).astype(np.float32)


def _split(images: Images, labels: Labels, *, train: int) -> DataSet:
    return DataSet(
        train=Samples(images=images[:train], labels=labels[:train]),
        held_out=Samples(images=images[train:], labels=labels[train:]),
    )
