"""Save with torch.distributed.checkpoint's async_save, the peer of benchmarks.train.checkpoint.

The weights are copied in a thread into memory that is used again, training waits for that copy only before its next
update, and another thread writes: the fastest way that torch.distributed.checkpoint.staging documents for CPUs. Pinned
memory and copies that do not block are for GPUs.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse, async_save

SAVE_TIMEOUT_S = 300.0


class AsyncSaves:
    """Saves tensors into a directory, one save after the other, and keeps the last."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False, use_shared_memory=False, use_async_staging=True, use_non_blocking_copy=False
            )
        )
        self._running: AsyncSaveResponse | None = None

    def start(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Begin a save."""
        self._number += 1
        place = self._directory / str(self._number)
        answer = async_save(dict(tensors), checkpoint_id=place, async_stager=self._stager, no_dist=True)
        assert isinstance(answer, AsyncSaveResponse)
        self._running = answer

    def wait_for_copy(self) -> None:
        """Wait until the tensors are copied and may change."""
        if self._running is not None:
            self._running.staging_completion.result(SAVE_TIMEOUT_S)

    @property
    def is_writing(self) -> bool:
        """True until the files are on disk."""
        return self._running is not None and not self._running.upload_completion.done()

    def wait(self) -> None:
        """Wait until the files are on disk, and delete those of the save before."""
        if self._running is not None:
            self._running.upload_completion.result(SAVE_TIMEOUT_S)
            shutil.rmtree(self._directory / str(self._number - 1), ignore_errors=True)

    def close(self) -> None:
        """End the copying thread."""
        self._stager.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The two halves of a training step: the second changes the weights."""

    compute: Callable[[], None]
    update: Callable[[], None]

    def run(self) -> None:
        """Run both."""
        self.compute()
        self.update()


def measure(
    saves: AsyncSaves, tensors: Mapping[str, torch.Tensor], step: Step, *, steps: int, least: int
) -> tuple[float, float]:
    """Save twice; return for how many seconds the first stops training, and what the second costs the steps beside it.

    Compare with as many steps before, and with the second save run at least so many.
    """
    stall_s = _measure_stall(saves, tensors, step)
    start = time.perf_counter()
    for _ in range(steps):
        step.run()
    step_s = (time.perf_counter() - start) / steps
    start, done = time.perf_counter(), 0
    saves.start(tensors)
    while saves.is_writing or done < least:
        step.compute()
        saves.wait_for_copy()
        step.update()
        done += 1
    cost_s = time.perf_counter() - start - done * step_s
    saves.wait()
    return stall_s, cost_s


def _measure_stall(saves: AsyncSaves, tensors: Mapping[str, torch.Tensor], step: Step) -> float:
    start = time.perf_counter()
    saves.start(tensors)
    stall_s = time.perf_counter() - start
    step.compute()
    start = time.perf_counter()
    saves.wait_for_copy()
    stall_s += time.perf_counter() - start
    step.update()
    saves.wait()
    return stall_s
