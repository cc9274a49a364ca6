"""Which samples are in which step, and which of them are this rank's.

The order of an epoch and its global batches depend on the seed alone, never on the number of
ranks: n ranks with batches of b see in each step the samples that one rank with n*b would see.
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
        """Return this shard's share; shares differ by at most one sample and may be empty."""
        total = len(samples)
        return samples[total * self.index // self.count : total * (self.index + 1) // self.count]


def global_batches(samples: int, *, global_batch_size: int, seed: int, epoch: int, begin: int = 0) -> Iterator[Indices]:
    """Yield the batches of one epoch from its sample ``begin`` on; the last may be smaller, every sample comes once."""
    order = np.random.default_rng([seed, epoch]).permutation(samples)
    for start in range(begin, samples, global_batch_size):
        yield order[start : start + global_batch_size]


def step_seed(seed: int, *, epoch: int, samples: int, shard: Shard) -> int:
    """Return the seed, of 31 bits, of a rank's random numbers in the step after so many samples of an epoch.

    Each step has its own, so that a training that goes on needs to know of none before.
    """
    [drawn] = np.random.SeedSequence([seed, epoch, samples, shard.index]).generate_state(1)
    return int(drawn) >> 1
