"""Test when and how the agent counts a node's GPUs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bootstrap.errors import CommandError
from bootstrap.health.gpus import DRIVER_LIST, EAGER_COUNT_S, STEADY_COUNT_S, GpuCounter, count_listed
from tests.bootstrap.simulated_node import Clock

TWO = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)
  MIG 1g.5gb Device 0: (UUID: MIG-1)
  MIG 1g.5gb Device 1: (UUID: MIG-2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)
"""


@pytest.mark.parametrize(("listing", "count"), [("", 0), ("No devices found.\n", 0), (TWO, 2)])
def test_gpus_are_counted_and_their_parts_are_not(listing: str, count: int) -> None:
    assert count_listed(listing) == count


def broken() -> str:
    raise CommandError("nvidia-smi -L exited 9: no driver")


def counter(
    root: Path, clock: Clock, nvidia_smi: Callable[[], str | None] = lambda: None, *, expected: int | None = None
) -> GpuCounter:
    return GpuCounter(root, expected=expected, nvidia_smi=nvidia_smi, monotonic=clock)


def test_driver_is_counted_only_where_there_is_no_nvidia_smi(tmp_path: Path) -> None:
    clock = Clock()
    assert counter(tmp_path, clock).count_or_zero() == 0
    for address in ("0000:00:1e.0", "0000:00:1f.0"):
        (tmp_path / DRIVER_LIST / address).mkdir(parents=True)
    assert counter(tmp_path, clock).count_or_zero() == 2
    # The kernel still shows a GPU that has fallen off the bus.
    assert counter(tmp_path, clock, broken).count_or_zero() == 0
    assert counter(tmp_path, clock, lambda: "GPU 0: NVIDIA L4\n").count_or_zero() == 1


@dataclass
class Answers:
    """Answers of nvidia-smi, the last one repeated, and the number of calls."""

    left: list[Callable[[], str]]
    asked: int = 0

    def __call__(self) -> str:
        self.asked += 1
        return (self.left.pop(0) if len(self.left) > 1 else self.left[0])()


@pytest.mark.parametrize("expected", [None, 2])
def test_late_driver_is_detected_and_not_queried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expected: int | None
) -> None:
    clock, answers = Clock(), Answers([broken, broken, lambda: TWO])
    gpus = counter(tmp_path, clock, answers, expected=expected)
    seen = []
    for _ in range(6):
        seen.append((gpus.count_or_zero(), gpus.count_or_zero(), answers.asked))
        clock.now += EAGER_COUNT_S
    assert seen == [(0, 0, 1), (0, 0, 2), (2, 2, 3), (2, 2, 3), (2, 2, 3), (2, 2, 3)]
    assert [record.getMessage() for record in caplog.records] == ["nvidia-smi -L exited 9: no driver"]


def test_gpu_count_is_kept_while_the_driver_is_silent(tmp_path: Path) -> None:
    clock, answers = Clock(), Answers([lambda: TWO, broken])
    gpus = counter(tmp_path, clock, answers, expected=2)
    for _ in range(3):
        assert gpus.count_or_zero() == 2
        clock.now += STEADY_COUNT_S
    assert answers.asked == 3


def test_node_without_gpus_is_queried_only_periodically(tmp_path: Path) -> None:
    clock, answers = Clock(), Answers([lambda: ""])
    gpus = counter(tmp_path, clock, answers, expected=0)
    for _ in range(61):
        assert gpus.count_or_zero() == 0
        clock.now += 1.0
    assert answers.asked == 2


def test_lost_gpu_is_detected_within_a_minute(tmp_path: Path) -> None:
    clock, answers = Clock(), Answers([lambda: TWO, lambda: "GPU 0: NVIDIA L4\n"])
    gpus = counter(tmp_path, clock, answers, expected=2)
    assert gpus.count_or_zero() == 2
    clock.now += STEADY_COUNT_S
    assert gpus.count_or_zero() == 1
    clock.now += EAGER_COUNT_S
    assert (gpus.count_or_zero(), answers.asked) == (1, 3)
