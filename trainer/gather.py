"""What every rank has to say, or one of them in words, on every rank."""

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


def tell(engine: Engine, text: str, *, source: int, shard: Shard) -> str:
    """What the rank ``source`` has to say in words, on every rank; what the others give is not looked at."""
    own = text.encode() if source == shard.index else b""
    [length] = engine.sum_over_ranks([len(own)])
    return bytes(int(value) for value in engine.sum_over_ranks(list(own) or [0] * int(length))).decode()
