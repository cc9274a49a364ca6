"""Choose a random part of an image, to be scaled to the network's size: torchvision's RandomResizedCrop.

Szegedy et al. (2015), "Going Deeper with Convolutions", section 6: the part has 8 to 100 % of the area and a ratio of
width to height between 3/4 and 4/3. Each choice depends only on seed, epoch and sample.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

SCALES: Final = (0.08, 1.0)
"""Smallest and largest share of the image's area."""
RATIOS: Final = (3 / 4, 4 / 3)
"""Smallest and largest ratio of width to height."""
ATTEMPTS: Final = 10
"""Number of parts drawn until one fits into the image; after that, take the largest centered part."""
RESIZED_CROP_STREAM: Final = 2
"""Number of the random stream of these crops; the sample order and other augmentation draw from others."""


class Box(NamedTuple):
    """Part of an image, in pixels from its upper left corner."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ResizedCrops:
    """Random parts of an epoch's images."""

    seed: int
    epoch: int

    def box(self, sample: int, *, width: int, height: int) -> Box:
        """Return the part of a sample whose image has this size."""
        numbers = np.random.default_rng([self.seed, self.epoch, sample, RESIZED_CROP_STREAM]).random((ATTEMPTS, 4))
        for scale, ratio, x, y in numbers.tolist():
            area = width * height * (SCALES[0] + scale * (SCALES[1] - SCALES[0]))
            shape = math.exp(math.log(RATIOS[0]) + ratio * math.log(RATIOS[1] / RATIOS[0]))
            wide, high = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < wide <= width and 0 < high <= height:
                left, top = int(x * (width - wide + 1)), int(y * (height - high + 1))
                return Box(left, top, left + wide, top + high)
        shape = min(max(width / height, RATIOS[0]), RATIOS[1])
        wide, high = min(width, round(height * shape)), min(height, round(width / shape))
        left, top = (width - wide) // 2, (height - high) // 2
        return Box(left, top, left + wide, top + high)
