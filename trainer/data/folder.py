"""Load image folders: DIRECTORY/train/CLASS/*.jpg and DIRECTORY/val/CLASS/*.jpg, the usual layout of ImageNet.

Threads decode the images when their batch is prepared, so that the data set need not fit into memory. For training a
random part of each image is scaled to the network's size. For validation, and without augmentation, images are scaled
to 8/7 of that size (256 for 224, as He et al. 2015) and cropped. They are normalised by ImageNet's mean and standard
deviation: measuring the folder's own would decode all of it once.
"""

import importlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainer.data import Labels, Pixels
from trainer.data.resized_crop import ResizedCrops
from trainer.data.samples import DataSet
from trainer.errors import TrainerError
from trainer.models import ImageShape

MEAN: Final = (123.675, 116.28, 103.53)
STD: Final = (58.395, 57.12, 57.375)
"""Mean and standard deviation of ImageNet's training images, in red, green and blue (torchvision, "Models and
pre-trained weights", times 255)."""
SUFFIXES: Final = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp"))
MARGIN: Final = 8 / 7
"""Ratio of the decoded images' size to the network's; the crop is taken from them."""


def load_folder(directory: Path, image_shape: ImageShape) -> DataSet:
    """List the images of both parts; classes are the directories of train, by name.

    Raises TrainerError if a part is missing or unreadable, a class has no image, or this Python has no Pillow.
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
    image_shape: ImageShape
    """Input shape of the network; without random parts the decoded images are larger by MARGIN."""
    threads: ThreadPoolExecutor

    def read(self, indices: NDArray[np.int64], crops: ResizedCrops | None = None) -> Pixels:
        """Decode these images; TrainerError names a damaged one."""
        channels, height, width = self.image_shape
        if crops is None:
            height, width = round(height * MARGIN), round(width * MARGIN)
        pixels = np.empty((len(indices), channels, height, width), np.uint8)
        decode = partial(self._decode, crops=crops, size=(width, height))
        for place, image in enumerate(self.threads.map(decode, indices.tolist())):
            pixels[place] = image
        return pixels

    def _decode(self, sample: int, *, crops: ResizedCrops | None, size: tuple[int, int]) -> Pixels:
        pillow, path = _pillow("Image"), self.paths[sample]
        mode = "RGB" if self.image_shape[0] > 1 else "L"
        try:
            with pillow.open(path) as image:
                if crops is None:
                    decoded = _decode_whole(image, mode, size)
                else:
                    decoded = _decode_part(image, mode, size, crops, sample)
            return np.atleast_3d(np.asarray(decoded)).transpose(2, 0, 1)
        # Errors that Pillow's decoders raise for damaged files.
        except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
            raise TrainerError(f"cannot read the image {path}, {str(error).splitlines()[0]}") from error


def decode_threads(environment: Mapping[str, str]) -> int:
    """Return this process's share of the machine's cores."""
    processes = environment.get("LOCAL_WORLD_SIZE", "1")
    return max(1, len(os.sched_getaffinity(0)) // int(processes) if processes.isdecimal() and int(processes) else 1)


def _decode_whole(image: Any, mode: str, size: tuple[int, int]) -> Any:
    """Return the largest centred part with the proportions of ``size``, scaled to that size."""
    width, height = size
    # JPEG decodes faster at 1/2, 1/4 or 1/8 of the size; keep at least twice the target size.
    image.draft(None, (2 * width, 2 * height))
    return _pillow("ImageOps").fit(image.convert(mode), size)


def _decode_part(image: Any, mode: str, size: tuple[int, int], crops: ResizedCrops, sample: int) -> Any:
    """Return a random part of an image in this size."""
    whole_width, whole_height = image.size
    box = crops.box(sample, width=whole_width, height=whole_height)
    # JPEG decodes faster at 1/2, 1/4 or 1/8 of the size; keep at least the size of the part.
    least = (size[0] * whole_width / (box.right - box.left), size[1] * whole_height / (box.bottom - box.top))
    image.draft(None, (math.ceil(least[0]), math.ceil(least[1])))
    across, down = image.width / whole_width, image.height / whole_height
    part = (box.left * across, box.top * down, box.right * across, box.bottom * down)
    return image.convert(mode).resize(size, _pillow("Image").Resampling.BILINEAR, box=part)


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
    return Files(
        paths=paths,
        labels=np.array(labels, np.int64),
        image_shape=image_shape,
        threads=ThreadPoolExecutor(decode_threads(os.environ), thread_name_prefix="decode"),
    )


def _images(directory: Path) -> list[Path]:
    """Return the images of one class. Not with glob(), which treats an unreadable directory as empty."""
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
    """Import a module of Pillow, which only this data set needs; nodes without it can train on the others."""
    try:
        return importlib.import_module(f"PIL.{module}")
    except ModuleNotFoundError as error:
        raise TrainerError(
            f"image folders need Pillow, which this Python lacks: {sys.executable} -m pip install pillow"
        ) from error
