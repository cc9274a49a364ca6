"""Test the steps found in the workers' output."""

import os
import sys

import pytest

from benchmarks.figure1._steps import StepLog, follow

SPEEDS = [(50.0, 50.0), (60.0, 60.0), (40.0, 41.0), (7.0, 7.0), (43.0, 40.0)]
"""Images/s of two workers in each step; the first two are skipped, and the fourth was disturbed."""
OUTPUT = [
    f"rank {rank}/2 Epoch[0] Batch [{step}] Speed: {speed:.2f} samples/sec accuracy=0.1000"
    for step, speeds in enumerate(SPEEDS, start=1)
    for rank, speed in enumerate(speeds)
]


def test_speed_and_cpu_time_skip_the_first_steps() -> None:
    clock = iter([10.0, 20.0, 21.0, 22.5, 24.5])
    steps = StepLog(workers=2, cpu_s=lambda: next(clock))
    for line in ["rank 0/2 global batch size 64", *OUTPUT]:
        steps.parse(line)
    assert steps.images_per_s == 83
    assert steps.cpu_s_per_step == 1.5


def run(script: str, *, steps: int, timeout_s: float = 30) -> StepLog:
    return follow(
        [sys.executable, "-c", script], environment=os.environ, workers=2, steps=steps, nodes=[], timeout_s=timeout_s
    )


def test_output_of_a_run_is_read_to_its_end() -> None:
    assert run(f"print(*{OUTPUT!r}, sep=chr(10))", steps=5).images_per_s == 83


@pytest.mark.parametrize(
    ("script", "timeout_s", "code"),
    [
        (f"print(*{OUTPUT[:-1]!r}, sep=chr(10))", 30, "0"),
        (f"print(*{OUTPUT!r}, sep=chr(10)); exit(3)", 30, "3"),
        ("import time; time.sleep(60)", 0.5, "-9"),
    ],
)
def test_run_that_misses_steps_is_an_error(script: str, timeout_s: float, code: str) -> None:
    with pytest.raises(ValueError, match=f"not all 2 workers made 5 steps, exit code {code}:"):
        run(script, steps=5, timeout_s=timeout_s)
