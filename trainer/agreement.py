"""All ranks must have the same data: others would make another number of steps, and wait for each other."""

import zlib
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from trainer.data import Labels
from trainer.data.samples import DataSet
from trainer.errors import TrainerError
from trainer.sampling import Shard

VALUES: Final = 2**20
"""Of a fingerprint: few enough that squares of thousands of ranks' add up exactly."""


class AddsUp(Protocol):
    """What adds up over all ranks."""

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks."""


def check_agreement(engine: AddsUp, data: DataSet, *, shard: Shard, source: str) -> None:
    """Raise TrainerError, on every rank, unless all have equally many samples with the same labels."""
    own = [float(_fingerprint(samples.labels)) for samples in (data.train, data.held_out)]
    sums = engine.sum_over_ranks([*own, *(value * value for value in own)])
    # By Cauchy and Schwarz both sides are equal only where all values are.
    if any(shard.count * int(squares) != int(total) ** 2 for total, squares in zip(sums[:2], sums[2:], strict=True)):
        raise TrainerError(
            f"{source} is not the same on all ranks, here it has {len(data.train.labels)} and "
            f"{len(data.held_out.labels)} samples: bring the same files to every node"
        )


def _fingerprint(labels: Labels) -> int:
    """Return a number that mostly differs where the number of samples or a label does."""
    return zlib.crc32(np.ascontiguousarray(labels).tobytes()) % VALUES
