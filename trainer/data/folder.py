"""Load image folders: DIRECTORY/train/CLASS/*.jpg and DIRECTORY/val/CLASS/*.jpg, the usual layout of ImageNet.

Threads decode the images when their batch is prepared, so that the data set need not fit into memory. They are scaled
to a seventh more than the network takes (for 224: 256, as He et al. 2015), and the crop is taken from that. They are
normalised by ImageNet's mean and standard deviation: measuring a folder's own would decode all of it once.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.data import Labels, Pixels
from trainer.data.samples import DataSet
from trainer.errors import TrainerError
from trainer.models import ImageShape

MEAN: Final = (123.675, 116.28, 103.53)
STD: Final = (58.395, 57.12, 57.375)
"""Mean and standard deviation of ImageNet's training images, in red, green and blue (torchvision, "Models and
pre-trained weights", times 255)."""
SUFFIXES: Final = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp"))
THREADS: Final = 8
"""Most threads; a machine's processes share its cores."""


def load_folder(directory: Path, image_shape: ImageShape) -> DataSet:
    """List the images of both parts; classes are the directories of train, by name.

    Raises TrainerError when a part is missing or may not be read, a class has no image, or this Python has no Pillow.
    """
    _pillow("Image")
    names = _classes(directory / "train")
    validation = _classes(directory / "val")
    labels = {name: label for label, name in enumerate(names)}
    unknown = [name for name in validation if name not in labels]
    if unknown:
        raise TrainerError(f"{directory / 'val'} has the class {unknown[0]}, {directory / 'train'} has not")
    colour = image_shape[0] == len(MEAN)
    return DataSet(
        train=_list(directory / "train", labels, image_shape),
        validation=_list(directory / "val", {name: labels[name] for name in validation}, image_shape),
        image_shape=image_shape,
        classes=len(names),
        names=tuple(names),
        mean=MEAN if colour else (sum(MEAN) / len(MEAN),),
        std=STD if colour else (sum(STD) / len(STD),),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Files:
    """Samples that are decoded when they are read."""

    paths: Sequence[Path] = field(repr=False)
    labels: Labels = field(repr=False)
    size: ImageShape
    """Shape of the decoded images."""
    threads: ThreadPoolExecutor

    def read(self, indices: NDArray[np.int64]) -> Pixels:
        """Decode these images; TrainerError names the one that is damaged."""
        pixels = np.empty((len(indices), *self.size), np.uint8)
        for place, image in enumerate(self.threads.map(self._decode, (self.paths[index] for index in indices))):
            pixels[place] = image
        return pixels

    def _decode(self, path: Path) -> Pixels:
        channels, height, width = self.size
        pillow = _pillow("Image")
        try:
            with pillow.open(path) as image:
                # JPEG decodes faster at 1/2, 1/4 or 1/8 of the size; keep at least twice what is needed.
                image.draft(None, (2 * width, 2 * height))
                converted = image.convert("RGB" if channels > 1 else "L")
            return np.atleast_3d(np.asarray(_pillow("ImageOps").fit(converted, (width, height)))).transpose(2, 0, 1)
        # The errors that Pillow's decoders raise for damaged files.
        except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
            raise TrainerError(f"cannot read the image {path}, {str(error).splitlines()[0]}") from error


def _classes(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError as error:
        raise TrainerError(
            f"cannot read {directory}, {error.strerror}: image folders are DIRECTORY/train/CLASS/*.jpg and "
            "DIRECTORY/val/CLASS/*.jpg, say with --data-dir where"
        ) from error
    if not names:
        raise TrainerError(f"{directory} has no directories, there must be one for each class")
    return names


def _list(directory: Path, classes: Mapping[str, int], image_shape: ImageShape) -> Files:
    """List the images of these classes; ``classes`` maps their names to labels."""
    paths, labels = [], []
    for name, label in classes.items():
        found = _images(directory / name)
        paths += found
        labels += [label] * len(found)
    channels, height, width = image_shape
    return Files(
        paths=paths,
        labels=np.array(labels, np.int64),
        size=(channels, round(height * 8 / 7), round(width * 8 / 7)),
        threads=ThreadPoolExecutor(min(THREADS, len(os.sched_getaffinity(0))), thread_name_prefix="decode"),
    )


def _images(directory: Path) -> list[Path]:
    """Return the images of one class. Not by glob(), which takes an unreadable directory for an empty one."""
    try:
        with os.scandir(directory) as entries:
            paths = sorted(Path(entry.path) for entry in entries)
    except OSError as error:
        raise TrainerError(f"cannot read {directory}, {error.strerror}") from error
    found = [path for path in paths if path.suffix.lower() in SUFFIXES]
    if not found:
        raise TrainerError(f"{directory} has no images, they end in one of: {', '.join(sorted(SUFFIXES))}")
    return found


def _pillow(module: str) -> Any:
    """Import a module of Pillow, which only this data set needs: nodes without it train on all others."""
    try:
        return importlib.import_module(f"PIL.{module}")
    except ModuleNotFoundError as error:
        raise TrainerError(
            f"image folders need Pillow, which this Python lacks: {sys.executable} -m pip install pillow"
        ) from error
