"""Run the trainer with --fast auto as if a step took the seconds in STEP_S, whatever else the machine does.

Writes rank<RANK>.json: how many times the rank summed gradients over the ring until the mode was picked.
"""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from trainer.backend import StepResult
from trainer.distributed.reduce.reducers import Ring, Vector
from trainer.torch_backend import autotune
from trainer.torch_backend.backend import TorchBackend
from trainer.torch_backend.compute_mode import ComputeMode
from trainer.train import main_and_exit

STEP_S = {
    "float32": (1.0, 1.0),
    # Rank 0 would pick it.
    "bfloat16": (0.5, 2.0),
    "float32 channels_last": (0.9, 0.9),
}
"""Seconds of a step on each rank, by mode."""
MIN_GRADIENTS = 1000
"""Smaller sums are measured times."""

clock = SimpleNamespace(seconds=0.0)
sums = SimpleNamespace(count=0)


class TimedBackend(TorchBackend):
    def forward_backward(self, *arguments: Any, **options: Any) -> StepResult:
        clock.seconds += STEP_S[str(self._mode)][int(os.environ["RANK"])]
        return super().forward_backward(*arguments, **options)


def count_and_sum(ring: Ring, vector: Vector, *, timeout_s: float) -> None:
    sums.count += len(vector) >= MIN_GRADIENTS
    all_reduce(ring, vector, timeout_s=timeout_s)


def pick_and_count(*arguments: Any, **options: Any) -> ComputeMode:
    mode = pick_mode(*arguments, **options)
    Path(f"rank{os.environ['RANK']}.json").write_text(json.dumps(sums.count))
    return mode


if __name__ == "__main__":
    all_reduce, pick_mode = Ring.all_reduce, autotune.pick_mode
    with (
        patch("trainer.torch_backend.autotune.TorchBackend", TimedBackend),
        patch.object(Ring, "all_reduce", count_and_sum),
        patch("trainer.torch_backend.autotune.pick_mode", pick_and_count),
        patch(
            "trainer.torch_backend.autotune.time",
            SimpleNamespace(perf_counter=lambda: clock.seconds, monotonic=time.monotonic),
        ),
    ):
        main_and_exit()
