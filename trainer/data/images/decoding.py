"""Decode images when their batch is prepared, so that the dataset need not fit into memory.

For training a random part of each image is scaled to the network's size. For validation, and without augmentation,
images are scaled to 8/7 of that size (256 for 224, as He et al. 2015) and cropped. They are normalized by ImageNet's
mean and standard deviation: measuring the dataset's own would decode all of it once.
"""

import importlib
import math
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from trainer.data import Labels, Pixels
from trainer.data.dataset import Dataset
from trainer.data.resized_crop import ResizedCrops
from trainer.errors import TrainerError
from trainer.models import ImageShape

MEAN: Final = (123.675, 116.28, 103.53)
STD: Final = (58.395, 57.12, 57.375)
"""Mean and standard deviation of ImageNet's training images, in red, green and blue (torchvision, "Models and
pre-trained weights", times 255)."""
MARGIN: Final = 8 / 7
"""Ratio of the decoded images' size to the network's; the crop is taken from them."""


def decode_threads(environment: Mapping[str, str]) -> int:
    """Return this process's share of the machine's cores."""
    processes = environment.get("LOCAL_WORLD_SIZE", "1")
    return max(1, len(os.sched_getaffinity(0)) // int(processes) if processes.isdecimal() and int(processes) else 1)


def start_threads(count: int | None = None) -> ThreadPoolExecutor:
    """Return this many threads that read and decode, by default one for each core of this process's share."""
    return ThreadPoolExecutor(count or decode_threads(os.environ), thread_name_prefix="decode")


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedSamples(ABC):
    """Samples that threads decode when they are read; a subclass opens their images."""

    labels: Labels = field(repr=False)
    image_shape: ImageShape
    """Input shape of the network; without random parts the decoded images are larger by MARGIN."""
    threads: ThreadPoolExecutor = field(default_factory=start_threads, repr=False)

    @abstractmethod
    def open(self, sample: int) -> Path | BinaryIO:
        """Return the encoded image of a sample."""

    @abstractmethod
    def describe(self, sample: int) -> str:
        """Return the place of a sample's image, for error messages."""

    def read(self, indices: NDArray[np.int64], crops: ResizedCrops | None = None) -> Pixels:
        """Decode these images; TrainerError names a damaged image."""
        channels, height, width = self.image_shape
        if crops is None:
            height, width = round(height * MARGIN), round(width * MARGIN)
        pixels = np.empty((len(indices), channels, height, width), np.uint8)
        decode = partial(self._decode, crops=crops, size=(width, height))
        for place, image in enumerate(self.threads.map(decode, indices.tolist())):
            pixels[place] = image
        return pixels

    def _decode(self, sample: int, *, crops: ResizedCrops | None, size: tuple[int, int]) -> Pixels:
        pillow, opened = import_pillow("Image"), self.open(sample)
        mode = "RGB" if self.image_shape[0] > 1 else "L"
        try:
            with pillow.open(opened) as image:
                if crops is None:
                    decoded = _decode_whole(image, mode, size)
                else:
                    decoded = _decode_part(image, mode, size, crops, sample)
            return np.atleast_3d(np.asarray(decoded)).transpose(2, 0, 1)
        # Errors that Pillow's decoders raise for damaged files.
        except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
            # Pillow describes bytes in memory by their address.
            reason = re.sub(r" <_io\..*?>", "", str(error).splitlines()[0])
            raise TrainerError(f"cannot read the image {self.describe(sample)}: {reason}") from error


def make_dataset_of_images(
    train: EncodedSamples, validation: EncodedSamples, *, num_classes: int, class_names: tuple[str, ...] = ()
) -> Dataset:
    """Return both parts as a dataset, normalized as ImageNet."""
    color = train.image_shape[0] == len(MEAN)
    return Dataset(
        train=train,
        validation=validation,
        image_shape=train.image_shape,
        num_classes=num_classes,
        class_names=class_names,
        mean=MEAN if color else (sum(MEAN) / len(MEAN),),
        std=STD if color else (sum(STD) / len(STD),),
    )


def _decode_whole(image: Any, mode: str, size: tuple[int, int]) -> Any:
    """Return the largest centered part with the proportions of ``size``, scaled to that size."""
    width, height = size
    # JPEG decodes faster at 1/2, 1/4 or 1/8 of the size; keep at least twice the target size.
    image.draft(None, (2 * width, 2 * height))
    return import_pillow("ImageOps").fit(image.convert(mode), size)


def _decode_part(image: Any, mode: str, size: tuple[int, int], crops: ResizedCrops, sample: int) -> Any:
    """Return a random part of an image in this size."""
    whole_width, whole_height = image.size
    box = crops.box(sample, width=whole_width, height=whole_height)
    # JPEG decodes faster at 1/2, 1/4 or 1/8 of the size; keep at least the size of the part.
    least = (size[0] * whole_width / (box.right - box.left), size[1] * whole_height / (box.bottom - box.top))
    image.draft(None, (math.ceil(least[0]), math.ceil(least[1])))
    across, down = image.width / whole_width, image.height / whole_height
    part = (box.left * across, box.top * down, box.right * across, box.bottom * down)
    return image.convert(mode).resize(size, import_pillow("Image").Resampling.BILINEAR, box=part)


def import_pillow(module: str) -> Any:
    """Import a module of Pillow, which only encoded images need; nodes without it can train on the others."""
    try:
        return importlib.import_module(f"PIL.{module}")
    except ModuleNotFoundError as error:
        raise TrainerError(
            "image folders and RecordIO files need Pillow, which this Python lacks: "
            f"{sys.executable} -m pip install pillow"
        ) from error
