"""Choose the samples of every step, and seed its random numbers.

The order of an epoch and its global batches depend only on the seed, not on the number of ranks: n ranks with batch b
train in each step on the same samples as one rank with batch n*b.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainer.distributed.data_parallel import DataParallelGroup

Indices = NDArray[np.int64]


def epoch_length(dataset_size: int, *, global_batch_size: int, begin: int = 0, drop_last: bool) -> int:
    """Return the sample index at which the epoch stops, if it resumes at ``begin``.

    ``drop_last`` omits a smaller last batch, unless it is the only one.
    """
    whole = begin + (dataset_size - begin) // global_batch_size * global_batch_size
    return whole if drop_last and whole else dataset_size


def global_batches(
    dataset_size: int, *, global_batch_size: int, seed: int, epoch: int, begin: int = 0, end: int | None = None
) -> Iterator[Indices]:
    """Yield the batches of an epoch from its sample ``begin`` to its sample ``end``; the last may be smaller."""
    order = np.random.default_rng([seed, epoch]).permutation(dataset_size)[:end]
    for start in range(begin, len(order), global_batch_size):
        yield order[start : start + global_batch_size]


def step_seed(seed: int, *, epoch: int, position: int, dp: DataParallelGroup) -> int:
    """Return the 31-bit seed of a rank's random numbers in the step at a position, in samples, of an epoch.

    Each step has its own seed, so that a resumed run needs no state of earlier steps.
    """
    [drawn] = np.random.SeedSequence([seed, epoch, position, dp.rank]).generate_state(1)
    return int(drawn) >> 1
