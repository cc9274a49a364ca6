"""Validate a network: count the validation images that it classifies correctly.

Every rank counts its share of the images; the training loop sums the counts.
"""

from contextlib import closing

import numpy as np

from trainer.backend import Backend
from trainer.data.batches import LoadBatch, prefetch
from trainer.data.dataset import Samples
from trainer.distributed.data_parallel import DataParallelGroup


def validate(
    backend: Backend, load_batch: LoadBatch, validation: Samples, *, dp: DataParallelGroup, global_batch_size: int
) -> int:
    """Return how many of this rank's validation images the network classifies correctly.

    Use the batch size of training, which is known to fit into the device's memory.
    """
    batch_size = max(1, global_batch_size // dp.world_size)
    share = dp.select(np.arange(len(validation.labels)))
    parts = (share[start : start + batch_size] for start in range(0, len(share), batch_size))
    with closing(prefetch(parts, lambda part: load_batch(validation, part))) as batches:
        return sum(backend.count_correct(images, labels) for images, labels in batches)
