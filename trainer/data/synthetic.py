"""Generate images for benchmarks, and for tests that need something to learn.

Each class has a random coarse pattern. An image is its class's pattern, shifted by a few pixels, scaled and covered by
noise: a network must find the pattern at any position, so its accuracy rises over several epochs.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.data.dataset import Dataset, InMemory, check_memory, make_dataset
from trainer.data.digits import scale
from trainer.models import ImageShape

SAMPLES: Final = 2000
"""Default number of training images, unless they exceed MEMORY; a fifth as many are added for validation."""
MEMORY: Final = 128 * 2**20
"""Largest default size of all training images, in bytes."""
COARSE: Final = 8
"""Rows and columns of a pattern."""
SHIFT: Final = 8
"""Divisor of an image's side that gives the largest shift of a pattern, in each direction."""
MIDDLE: Final = 128
"""Mean of all pixel values."""
STRENGTH: Final = 48
"""Standard deviation of a pattern of medium strength."""
NOISE: Final = 48
"""Largest noise, in either direction."""


def make_synthetic(
    image_shape: ImageShape, *, num_classes: int = 10, samples: int | None = None, seed: int = 0
) -> Dataset:
    """Generate ``samples`` training images and a fifth as many for validation; a seed always gives the same images.

    Raises TrainerError if the machine's memory is too small.
    """
    train = samples or min(SAMPLES, max(1, MEMORY // math.prod(image_shape)))
    validation = max(1, train // 5)
    check_memory(image_shape, train=train, validation=validation)
    generator = np.random.default_rng(seed)
    patterns = generator.standard_normal((num_classes, image_shape[0], COARSE, COARSE), np.float32)
    parts = [_draw(patterns, image_shape, count, generator) for count in (train, validation)]
    return make_dataset(*parts, num_classes=num_classes, source="synthetic")


def _draw(
    patterns: NDArray[np.float32], image_shape: ImageShape, count: int, generator: np.random.Generator
) -> InMemory:
    """Draw images one after the other, so that all of them exist only as bytes."""
    _, height, width = image_shape
    size = math.prod(image_shape)
    pixels = np.empty((count, *image_shape), np.uint8)
    labels = generator.integers(len(patterns), size=count)
    shifts = generator.integers(-(height // SHIFT), height // SHIFT + 1, size=(count, 2))
    strengths = generator.uniform(0.5, 1.5, size=count) * STRENGTH
    # Take each image's noise from one strip: drawing new noise would take most of the time.
    strip = generator.integers(MIDDLE - NOISE, MIDDLE + NOISE + 1, size=2 * size, dtype=np.int16)
    starts = generator.integers(size, size=count)
    for index in range(count):
        noise = strip[starts[index] : starts[index] + size].reshape(image_shape)
        pattern = scale(np.float32(strengths[index]) * patterns[labels[index]], height=height, width=width)
        shifted = np.roll(pattern.astype(np.int16), shifts[index], axis=(1, 2))
        pixels[index] = (shifted + noise).clip(0, 255)
    return InMemory(pixels=pixels, labels=labels)
