"""Validate a network: count the validation images that it classifies correctly."""

from contextlib import closing
from typing import Final

import numpy as np

from trainer.backend import Backend
from trainer.data.batches import BatchLoader, prefetch
from trainer.data.samples import Samples
from trainer.data.sampling import Shard

VALIDATION_BATCH: Final = 256


def count_valid(backend: Backend, load: BatchLoader, validation: Samples, *, shard: Shard) -> int:
    """Return how many of this rank's validation images the network classifies correctly."""
    own = shard.of(np.arange(len(validation.labels)))
    parts = (own[start : start + VALIDATION_BATCH] for start in range(0, len(own), VALIDATION_BATCH))
    with closing(prefetch(parts, lambda part: load(validation, part))) as batches:
        return sum(backend.count_correct(images, labels) for images, labels in batches)
