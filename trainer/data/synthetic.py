"""Made-up images: for measurements, and for tests that need something to be learned.

Each class has a random coarse pattern. An image is its class's pattern, shifted by a few pixels, more or less strong,
under noise: a network has to find the pattern wherever it lies, and a curve of its accuracy rises over some epochs.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.data.digits import scale
from trainer.data.samples import DataSet, InMemory, check_memory, in_memory
from trainer.models import ImageShape

SAMPLES: Final = 2000
"""For training, where fewer do not fill MEMORY; a fifth as many more are held out."""
MEMORY: Final = 128 * 2**20
"""Bytes of all training images."""
COARSE: Final = 8
"""Rows and columns of a pattern."""
SHIFT: Final = 8
"""A pattern moves by at most this part of a side, each way."""
MIDDLE: Final = 128
"""Of all pixel values."""
STRENGTH: Final = 48
"""Deviation of a pattern of middling strength."""
NOISE: Final = 48
"""At most, each way."""


def make_synthetic(image_shape: ImageShape, *, classes: int = 10, samples: int | None = None, seed: int = 0) -> DataSet:
    """Make up ``samples`` images for training and a fifth as many to hold out: the same ones for a seed.

    Raises TrainerError when the machine's memory cannot hold them.
    """
    train = samples or min(SAMPLES, max(1, MEMORY // math.prod(image_shape)))
    held_out = max(1, train // 5)
    check_memory(image_shape, train=train, held_out=held_out)
    generator = np.random.default_rng(seed)
    patterns = generator.standard_normal((classes, image_shape[0], COARSE, COARSE), np.float32)
    parts = [_draw(patterns, image_shape, count, generator) for count in (train, held_out)]
    return in_memory(*parts, classes=classes, source="synthetic")


def _draw(
    patterns: NDArray[np.float32], image_shape: ImageShape, count: int, generator: np.random.Generator
) -> InMemory:
    """Draw images one after the other, so that only bytes are there of all at the same time."""
    _, height, width = image_shape
    size = math.prod(image_shape)
    pixels = np.empty((count, *image_shape), np.uint8)
    labels = generator.integers(len(patterns), size=count)
    shifts = generator.integers(-(height // SHIFT), height // SHIFT + 1, size=(count, 2))
    strengths = generator.uniform(0.5, 1.5, size=count) * STRENGTH
    # Each image's noise is a part of one strip: to draw it anew would take most of the time.
    strip = generator.integers(MIDDLE - NOISE, MIDDLE + NOISE + 1, size=2 * size, dtype=np.int16)
    starts = generator.integers(size, size=count)
    for index in range(count):
        noise = strip[starts[index] : starts[index] + size].reshape(image_shape)
        pattern = scale(np.float32(strengths[index]) * patterns[labels[index]], height=height, width=width)
        shifted = np.roll(pattern.astype(np.int16), shifts[index], axis=(1, 2))
        pixels[index] = (shifted + noise).clip(0, 255)
    return InMemory(pixels=pixels, labels=labels)
