"""What every rank has to say, on every rank."""

from collections.abc import Sequence

from trainer.engines import Engine
from trainer.sampling import Shard


def gather(engine: Engine, values: Sequence[float], *, shard: Shard) -> list[list[float]]:
    """Every rank's values, by rank; all have equally many."""
    width = len(values)
    table = [0.0] * (width * shard.count)
    table[width * shard.index : width * (shard.index + 1)] = values
    table = engine.sum_over_ranks(table)
    return [table[start : start + width] for start in range(0, len(table), width)]
