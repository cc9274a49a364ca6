"""Send 64-bit numbers over a network that adds 32-bit numbers.

MXNet's servers add in float32, whatever the type of the key, and would round a count beyond 2^24 or a time of day. A
float64 has 53 significant bits, which three float32 of 24 bits represent exactly. Each rank fills its own row and
leaves the others' zero, so that adding changes no bit.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

PARTS: Final = 3


def split_row(values: Sequence[float], *, rank: int, ranks: int) -> NDArray[np.float32]:
    """Return a table of all ranks as one vector of ranks * PARTS * len(values): this rank's row among zeros."""
    table = np.zeros((ranks, PARTS, len(values)), np.float32)
    table[rank] = _split(np.array(values, np.float64))
    return table.ravel()


def sum_rows(table: NDArray[np.float32], *, ranks: int) -> list[float]:
    """Return the sum of each value over all ranks; in rank order, so that all ranks get the same bits."""
    rows = table.reshape(ranks, PARTS, -1).astype(np.float64).sum(axis=1)
    return [float(value) for value in sum(rows[1:], start=rows[0])]


def _split(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return three float32 for each value that add up to it; infinities and nan stay unchanged."""
    parts = np.zeros((PARTS, len(values)), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        parts[0] = values
        rest = np.where(np.isfinite(parts[0]), values - parts[0].astype(np.float64), 0)
        parts[1] = rest
        parts[2] = rest - parts[1].astype(np.float64)
    return parts
