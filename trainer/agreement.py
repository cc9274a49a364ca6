"""All ranks must have the same data: others would make another number of steps, and wait for each other."""

import zlib
from collections.abc import Sequence
from typing import Final, Protocol

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
    """Raise TrainerError, on every rank, unless all have equally many samples with the same labels and class names."""
    contents = [data.train.labels.tobytes(), data.held_out.labels.tobytes(), "/".join(data.names).encode()]
    own = [float(zlib.crc32(content) % VALUES) for content in contents]
    sums = engine.sum_over_ranks([*own, *(value * value for value in own)])
    # By Cauchy and Schwarz both sides are equal only where all values are.
    totals, squares = sums[: len(own)], sums[len(own) :]
    if any(shard.count * int(square) != int(total) ** 2 for total, square in zip(totals, squares, strict=True)):
        raise TrainerError(
            f"{source} is not the same on all ranks, here it has {data.counts}: bring the same files to every node"
        )
