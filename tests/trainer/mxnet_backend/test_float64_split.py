"""Test that float64 values survive sums in float32."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from trainer.mxnet_backend.float64_split import split_row, sum_rows


def added_by_servers(values_of_ranks: Sequence[Sequence[float]]) -> list[float]:
    """Return the ranks' sums from servers that add in float32."""
    count = len(values_of_ranks)
    rows = [split_row(values, rank=rank, ranks=count) for rank, values in enumerate(values_of_ranks)]
    total = rows[0]
    with np.errstate(invalid="ignore"):
        for row in rows[1:]:
            total = total + row
    assert total.dtype == np.float32
    return sum_rows(total, ranks=count)


@pytest.mark.parametrize(
    "values", [[2.0**40 + 1], [1795323123.123456, 0.1], [math.pi, -1e-5, 3], [float(2**53 - 1)], [0.0]]
)
def test_every_bit_of_a_float64_survives(values: list[float]) -> None:
    zeros = [0.0] * len(values)
    for rank in range(3):
        assert added_by_servers([values if rank == one else zeros for one in range(3)]) == values


def test_sums_match_float64() -> None:
    assert added_by_servers([[0.1, 2**24], [0.2, 1], [0.3, 1]]) == [0.1 + 0.2 + 0.3, 2**24 + 2]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_non_finite_values_reach_all_ranks(value: float) -> None:
    [found, other] = added_by_servers([[value, 1.0], [0.5, 2.0]])
    assert str(found) == str(value)
    assert other == 3
