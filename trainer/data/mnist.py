"""Load MNIST and Fashion-MNIST: four idx files in one directory, gzipped or not."""

from pathlib import Path
from typing import Final

import numpy as np

from trainer.config.datasets import DATASETS
from trainer.data.dataset import Dataset, InMemory, make_dataset
from trainer.data.file_io import exists
from trainer.data.idx import read_idx
from trainer.errors import TrainerError

NUM_CLASSES: Final = 10


def load_mnist(directory: Path, *, name: str) -> Dataset:
    """Read the dataset ``name``, mnist or fashion-mnist: 60,000 and 10,000 images of 28x28.

    Raises TrainerError if a file is damaged or missing; the message tells where to get it.
    """
    return make_dataset(
        _read(directory, "train", name=name),
        _read(directory, "t10k", name=name),
        num_classes=NUM_CLASSES,
        source=directory,
    )


def _read(directory: Path, part: str, *, name: str) -> InMemory:
    images = _find(directory, f"{part}-images-idx3-ubyte", name=name)
    pixels = read_idx(images, dimensions=3)
    if pixels.shape[1:] != (28, 28):
        raise TrainerError(f"{images} has images of {pixels.shape[1]}x{pixels.shape[2]}, {name}'s are 28x28")
    labels = read_idx(_find(directory, f"{part}-labels-idx1-ubyte", name=name), dimensions=1)
    return InMemory(pixels=pixels[:, None], labels=labels.astype(np.int64))


def _find(directory: Path, file: str, *, name: str) -> Path:
    for path in (directory / file, directory / f"{file}.gz"):
        if exists(path):
            return path
    raise TrainerError(
        f"no {file} or {file}.gz in {directory}: get the four files of {name} from {DATASETS[name].page} "
        "and pass their directory as --data-dir"
    )
