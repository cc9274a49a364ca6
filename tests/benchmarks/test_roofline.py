"""Test the shortest time that a GPU needs for a network by its datasheet."""

import pytest
import torch
from torch import nn

from benchmarks.gpu._roofline import work_of_step

BATCH, INPUTS, OUTPUTS = 8, 16, 4


def test_operations_and_bytes_of_matrix_products_are_counted() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, OUTPUTS), nn.Tanh(), nn.Linear(OUTPUTS, OUTPUTS))
    work = work_of_step(model, (BATCH, 1, 4, 4), width=2)
    # Forward of both; backward for the weights of both, and for the second one's input.
    big, small = BATCH * INPUTS * OUTPUTS, BATCH * OUTPUTS * OUTPUTS
    assert work.operations == 2 * (2 * big + 3 * small)
    # A bias is read in forward.
    values = 2 * (BATCH * INPUTS + INPUTS * OUTPUTS + BATCH * OUTPUTS) + 3 * (2 * BATCH * OUTPUTS + OUTPUTS**2)
    assert work.bytes == 2 * (values + 2 * OUTPUTS)
    assert len(work.parts) == 5


def test_shortest_time_is_limited_by_arithmetic_or_memory_per_operation() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    model(torch.zeros(1, 3, 8, 8))
    work = work_of_step(model, (4, 3, 8, 8), width=2)
    assert work.floor(operations_s=1e12, bytes_s=1e30) == pytest.approx(work.operations / 1e12)
    assert work.floor(operations_s=1e30, bytes_s=1e9) == pytest.approx(work.bytes / 1e9)
    # The convolution waits for the arithmetic, the products for the memory.
    assert work.floor(operations_s=4e12, bytes_s=1e12) > 1.1 * max(work.operations / 4e12, work.bytes / 1e12)
