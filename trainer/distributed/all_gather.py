"""Collect a row of numbers from every rank, on every rank."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from trainer.distributed.data_parallel import DataParallelGroup

Row = TypeVar("Row", bound=tuple[float, ...])
"""A NamedTuple of numbers and booleans."""


class SupportsAllReduce(Protocol):
    """The part of a backend that all_gather needs."""

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each value over all ranks, as float64."""


def all_gather(backend: SupportsAllReduce, row: Row, *, dp: DataParallelGroup) -> list[Row]:
    """Return the rows of all ranks, by rank. Every backend can sum, so each rank adds its row to a table of zeros.

    A sum is a float, so a field that is boolean in ``row`` is turned into a boolean again.
    """
    width = len(row)
    table = [0.0] * (width * dp.world_size)
    table[width * dp.rank : width * (dp.rank + 1)] = row
    table = backend.all_reduce(table)
    make: Callable[..., Row] = type(row)
    rows = (table[start : start + width] for start in range(0, len(table), width))
    return [
        make(*(bool(value) if isinstance(own, bool) else value for value, own in zip(values, row, strict=True)))
        for values in rows
    ]
