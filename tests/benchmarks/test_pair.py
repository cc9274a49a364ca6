"""What is read from what a worker says."""

import pytest

from benchmarks.harness.pair import Line, whole_epochs
from benchmarks.harness.work import Work


def test_whole_epochs_count_what_is_done_between_two_of_them() -> None:
    work = Work(batch_size=8, steps=4, epochs=3, window=2)
    # Windows of a second, and two seconds for validation and checkpoint after each epoch.
    times = [1, 2, 5, 6, 9, 10]
    lines = [Line(seconds=second, text=f"Epoch[0] Batch [2] Speed: 16.00 samples/sec {second}") for second in times]
    lines.insert(2, Line(seconds=3, text="Epoch[0] Train-accuracy=0.5 Speed=99 samples/sec (all workers)"))
    assert whole_epochs(lines, work) == pytest.approx(2 * 32 / 8)
