"""Test the report on a GPU's measured times."""

import pytest

from benchmarks.gpu.gpu import CheckpointTimes, stall_ratio


def test_stall_ratio_ignores_noisy_runs() -> None:
    quiet = CheckpointTimes(steps=2.0, steps_with_copy=2.2, save=4.0)
    assert stall_ratio([quiet]) == pytest.approx(0.05)
    disturbed = CheckpointTimes(steps=3.0, steps_with_copy=2.3, save=5.0)
    assert stall_ratio([disturbed, quiet]) == pytest.approx(0.05)
