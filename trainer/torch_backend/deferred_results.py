"""Read the result of a step during the next step, so that the CPU stays ahead of the GPU.

Reading a number from a GPU waits for all queued work; the GPU then idles until new work arrives. The CPU waits for a
result only if it needs it immediately: every few batches, and for a checkpoint.
"""

from dataclasses import replace
from typing import NamedTuple

import torch

from trainer.backend import StepFlags, StepResult
from trainer.cuda_streams import record_event, start_copy_to_host, wait_for


class StepNumbers(NamedTuple):
    """Numbers of a step, in the order of the tensor."""

    loss_sum: float
    save: float
    stop: float
    correct: float

    @property
    def result(self) -> StepResult:
        """Return the numbers as a result."""
        flags = StepFlags(save=self.save > 0, stop=self.stop > 0)
        return StepResult(loss_sum=self.loss_sum, correct=int(self.correct), flags=flags)


class PendingCopy(NamedTuple):
    """Numbers that are being copied to the host."""

    results: torch.Tensor
    arrived: torch.cuda.Event | None

    def read(self, *, timeout_s: float) -> StepResult:
        """Wait for the copy and return the result. Raises TrainerError after ``timeout_s``: a rank is lost."""
        wait_for(self.arrived, timeout_s=timeout_s)
        return StepNumbers(*self.results.tolist()).result


class DeferredResults:
    """Keeps the result that is still on the device; without ``is_deferred`` (CPU), results are read immediately."""

    def __init__(self, *, is_deferred: bool) -> None:
        self._is_deferred = is_deferred
        self._waiting: PendingCopy | None = None

    def push(self, results: torch.Tensor, *, timeout_s: float) -> StepResult | None:
        """Take a step's StepNumbers, shape (4,); return its result, or if deferred the previous step's, if any.

        Raises TrainerError if the device does not finish a step in ``timeout_s``: a rank that it waits for is lost.
        """
        if not self._is_deferred:
            return StepNumbers(*results.tolist()).result
        previous, self._waiting = self._waiting, PendingCopy(start_copy_to_host(results), record_event(results.device))
        return None if previous is None else replace(previous.read(timeout_s=timeout_s), delay_steps=1)

    def take(self, *, timeout_s: float) -> StepResult | None:
        """Wait for and return the outstanding result, if any."""
        waiting, self._waiting = self._waiting, None
        return None if waiting is None else waiting.read(timeout_s=timeout_s)
