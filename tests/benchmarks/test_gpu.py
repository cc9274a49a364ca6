"""Test the report on a GPU's measured times."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import gpu
from benchmarks.gpu.gpu import CheckpointTimes, loop_speeds, settings, stall_ratio
from trainer.data.images.folder import Files


def test_stall_ratio_ignores_noisy_runs() -> None:
    quiet = CheckpointTimes(steps=2.0, steps_with_copy=2.2, save=4.0)
    assert stall_ratio([quiet]) == pytest.approx(0.05)
    disturbed = CheckpointTimes(steps=3.0, steps_with_copy=2.3, save=5.0)
    assert stall_ratio([disturbed, quiet]) == pytest.approx(0.05)


def test_loop_over_jpeg_files_reads_every_image_in_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = Files.open

    def open_and_count(samples: Files, sample: int) -> Path:
        read.append(sample)
        return real(samples, sample)

    monkeypatch.setattr(Files, "open", open_and_count)
    monkeypatch.setattr(gpu, "STEPS", 2)
    monkeypatch.setattr(gpu, "JPEG_STEPS", 2)
    config = replace(settings("lenet", (3, 32, 32), classes=10, batch=8), dtype="float32", compile="0")
    speeds = loop_speeds(config)
    assert list(speeds) == ["resident", "memory", "jpeg"]
    assert all(speed > 0 for speed in speeds.values())
    assert sorted(read) == sorted(2 * [*range(2 * 8), 0])
