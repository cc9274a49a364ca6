"""Test the report on a GPU's measured times."""

import json
import sys
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch

from benchmarks.gpu import gpu
from benchmarks.gpu.gpu import CheckpointTimes, loop_speeds, settings, stall_ratio
from trainer.config.settings import TrainConfig
from trainer.data.images.folder import Files

BATCH = 32


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
    config = replace(settings("lenet", (3, 32, 32), num_classes=10, batch=8), dtype="float32", compile="0")
    speeds = loop_speeds(config)
    assert list(speeds) == ["resident", "memory", "jpeg"]
    assert all(speed > 0 for speed in speeds.values())
    assert sorted(read) == sorted(2 * [*range(2 * 8), 0])


class Memory:
    """Stands in for a GPU's memory: torch keeps what freed objects had until its cache is emptied."""

    def __init__(self) -> None:
        self._users: weakref.WeakSet[Bench] = weakref.WeakSet()
        self.is_free = True

    def allocate(self, user: "Bench") -> None:
        self._users.add(user)
        self.is_free = False

    def empty_cache(self) -> None:
        self.is_free = not self._users


class Bench:
    """Stands in for StepBench: takes memory, in a cycle of references as a network with hooks does."""

    memory: Memory
    batches: list[int]

    def __init__(self, config: TrainConfig) -> None:
        self.cycle = self
        self.memory.allocate(self)
        self.batches.append(config.batch_size_per_node)

    def speed(self) -> float:
        return 300.0

    def checkpoint_times(self) -> CheckpointTimes:
        return CheckpointTimes(steps=1.0, steps_with_copy=1.0, save=1.0)


class Timm:
    """Stands in for timm's benchmark script, on a GPU with this memory; ``halves`` is timm's answer to a full GPU."""

    def __init__(self, memory: Memory, *, halves: bool = False) -> None:
        self._memory = memory
        self._halves = halves
        self.batches: list[int] = []

    def run(self, command: Sequence[str], **_: object) -> "CompletedProcess[str]":
        assert self._memory.is_free
        batch = int(command[command.index("--batch-size") + 1])
        self.batches.append(batch)
        result = {"train_batch_size": batch // 2 if self._halves else batch, "train_samples_per_sec": 200.0}
        return CompletedProcess([*command], 0, f"log\n--result\n{json.dumps(result)}\n")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Let gpu.main() run on a machine without a GPU."""
    memory = Memory()
    monkeypatch.setattr(Bench, "memory", memory, raising=False)
    monkeypatch.setattr(Bench, "batches", [], raising=False)
    monkeypatch.setattr(gpu, "StepBench", Bench)
    monkeypatch.setattr(gpu, "print_floor", lambda *_, **__: None)
    monkeypatch.setattr(gpu, "loop_speeds", lambda _: {"jpeg": 270.0})
    for name, value in (("is_available", True), ("get_device_name", "A GPU"), ("device_count", 1)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "empty_cache", memory.empty_cache)
    monkeypatch.setattr(
        sys, "argv", ["gpu", "--rounds", "2", "--timm", "timm/benchmark.py", "--batch-size", str(BATCH)]
    )
    return memory


def test_timm_finds_the_memory_free_and_uses_the_same_batch(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timm = Timm(memory)
    monkeypatch.setattr("subprocess.run", timm.run)
    assert gpu.main() == 0
    assert timm.batches == Bench.batches[:2] == [BATCH] * 2
    assert {"gpu_vs_timm 1.500 ratio", "gpu_loop_jpeg 0.900 ratio"} <= {*capsys.readouterr().out.splitlines()}


def test_smaller_batch_of_timm_is_an_error(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", Timm(memory, halves=True).run)
    with pytest.raises(SystemExit, match=r"^error: timm used batch size 16, want 32: try --batch-size$"):
        gpu.main()
