"""Choose the samples of every step, and this rank's share of them.

The order of an epoch and its global batches depend on the seed alone, never on the number of ranks: n ranks with
batches of b train in each step on the samples that one rank with a batch of n*b would.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """One of ``count`` equal parts of the work."""

    index: int = 0
    count: int = 1

    def of(self, samples: Indices) -> Indices:
        """Return the share of these samples; shares differ by at most one sample and may be empty."""
        total = len(samples)
        return samples[total * self.index // self.count : total * (self.index + 1) // self.count]


def global_batches(samples: int, *, global_batch_size: int, seed: int, epoch: int, begin: int = 0) -> Iterator[Indices]:
    """Yield the batches of an epoch from its sample ``begin`` on, every sample once; the last may be smaller."""
    order = np.random.default_rng([seed, epoch]).permutation(samples)
    for start in range(begin, samples, global_batch_size):
        yield order[start : start + global_batch_size]


def step_seed(seed: int, *, epoch: int, samples: int, shard: Shard) -> int:
    """Return the 31-bit seed of a rank's random numbers in the step after this many samples of an epoch.

    Each step has its own seed, so that a resumed training needs no state of earlier steps.
    """
    [drawn] = np.random.SeedSequence([seed, epoch, samples, shard.index]).generate_state(1)
    return int(drawn) >> 1
