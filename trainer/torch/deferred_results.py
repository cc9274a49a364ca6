"""Read the results of a step one step late, so that the processor keeps ahead of a GPU.

Reading a number off a GPU waits until it has nothing left to do; then it idles until the next operations arrive. So the
results of a step are read during the next one. Only when they are needed at once, every few batches and for a
checkpoint, does the processor wait for them.
"""

from dataclasses import replace
from typing import NamedTuple

import torch

from trainer.backend import BatchResult, StopSaveFlags
from trainer.side_stream import record_event, to_host, wait_for


class StepFigures(NamedTuple):
    """The numbers of a step, in the order in which they leave the device."""

    loss_sum: float
    save: float
    stop: float
    correct: float

    @property
    def result(self) -> BatchResult:
        """Return them as a result."""
        flags = StopSaveFlags(save=self.save > 0, stop=self.stop > 0)
        return BatchResult(loss_sum=self.loss_sum, correct=int(self.correct), flags=flags)


class Copy(NamedTuple):
    """Figures on their way to the host."""

    figures: torch.Tensor
    arrived: torch.cuda.Event | None

    def read(self, *, timeout_s: float) -> BatchResult:
        """Return the result once it has arrived. Raises TrainerError after ``timeout_s``: a rank is lost."""
        wait_for(self.arrived, timeout_s=timeout_s)
        return StepFigures(*self.figures.tolist()).result


class DeferredResults:
    """Results of steps on their way from the device; without ``is_deferred`` they are read at once, as on a CPU."""

    def __init__(self, *, is_deferred: bool) -> None:
        self._is_deferred = is_deferred
        self._waiting: Copy | None = None

    def push(self, figures: torch.Tensor, *, timeout_s: float) -> BatchResult | None:
        """Take a step's StepFigures, shape (4,); return that result, or when deferred the previous step's, if any.

        Raises TrainerError when the device does not finish a step for ``timeout_s``: a rank that it waits for is lost.
        """
        if not self._is_deferred:
            return StepFigures(*figures.tolist()).result
        previous, self._waiting = self._waiting, Copy(to_host(figures), record_event(figures.device))
        return None if previous is None else replace(previous.read(timeout_s=timeout_s), steps_ago=1)

    def take(self, *, timeout_s: float) -> BatchResult | None:
        """Return the result that has not been read yet, if there is one."""
        waiting, self._waiting = self._waiting, None
        return None if waiting is None else waiting.read(timeout_s=timeout_s)
