"""Test the steps found in the workers' output."""

import os
import sys

import pytest

from benchmarks.figure1._steps import Steps, follow

SPEEDS = [(50.0, 50.0), (60.0, 60.0), (40.0, 41.0), (7.0, 7.0), (43.0, 40.0)]
"""Images/s of two workers in each step; the first two do not count, and one that was disturbed hardly does."""
SAID = [
    f"rank {rank}/2 Epoch[0] Batch [{step}] Speed: {speed:.2f} samples/sec accuracy=0.1000"
    for step, speeds in enumerate(SPEEDS, start=1)
    for rank, speed in enumerate(speeds)
]


def test_speed_and_processor_time_are_of_the_steps_that_count() -> None:
    clock = iter([10.0, 20.0, 21.0, 22.5, 24.5])
    steps = Steps(workers=2, cpu_s=lambda: next(clock))
    for line in ["rank 0/2 global batch size 64", *SAID]:
        steps.hear(line)
    assert steps.images_per_s == 83
    assert steps.cpu_s_per_step == 1.5


def run(script: str, *, steps: int, timeout_s: float = 30) -> Steps:
    return follow(
        [sys.executable, "-c", script], environment=os.environ, workers=2, steps=steps, nodes=[], timeout_s=timeout_s
    )


def test_a_training_is_followed_to_its_end() -> None:
    assert run(f"print(*{SAID!r}, sep=chr(10))", steps=5).images_per_s == 83


@pytest.mark.parametrize(
    ("script", "timeout_s", "code"),
    [
        (f"print(*{SAID[:-1]!r}, sep=chr(10))", 30, "0"),
        (f"print(*{SAID!r}, sep=chr(10)); exit(3)", 30, "3"),
        ("import time; time.sleep(60)", 0.5, "-9"),
    ],
)
def test_fails_when_it_does_not_make_its_steps_in_time(script: str, timeout_s: float, code: str) -> None:
    with pytest.raises(ValueError, match=f"not all 2 workers made 5 steps, exit code {code}:"):
        run(script, steps=5, timeout_s=timeout_s)
