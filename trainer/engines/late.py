"""Figures of a step that nobody waits for: a GPU that computes them is a step behind the processor that asks.

To read a number off a GPU is to wait until it has nothing left to do, and then it stands still until the next
operations come. So the figures of a step are read in the next one, while that is computed; only where they are wanted
at once, every so many batches and for a checkpoint, are they waited for.
"""

from dataclasses import replace

import torch

from trainer.engines import Asks, BatchResult
from trainer.engines.streams import mark, to_host, wait_for


class Figures:
    """Results of steps on their way from the device. Those that are not ``late`` are read at once, as on a CPU."""

    def __init__(self, *, late: bool) -> None:
        self._late = late
        self._waiting: tuple[torch.Tensor, torch.cuda.Event | None] | None = None

    def push(self, figures: torch.Tensor, *, timeout_s: float) -> BatchResult | None:
        """Send a step's loss, wishes to save and to stop of all ranks, and what this one recognised: shape (4,).

        Returns that result, or if it is late that of the step before, if there was one. Raises TrainerError when the
        device does not come to its end for ``timeout_s``: a rank that it waits for is gone.
        """
        if not self._late:
            return _result(figures)
        before, self._waiting = self._waiting, (to_host(figures), mark(figures.device))
        return None if before is None else replace(_read(before, timeout_s), steps_ago=1)

    def settle(self, *, timeout_s: float) -> BatchResult | None:
        """Return the result that has not been read, if there is one."""
        waiting, self._waiting = self._waiting, None
        return None if waiting is None else _read(waiting, timeout_s)


def _read(sent: tuple[torch.Tensor, torch.cuda.Event | None], timeout_s: float) -> BatchResult:
    figures, event = sent
    wait_for(event, timeout_s=timeout_s)
    return _result(figures)


def _result(figures: torch.Tensor) -> BatchResult:
    loss_sum, save, stop, correct = figures.tolist()
    return BatchResult(loss_sum=loss_sum, correct=int(correct), asks=Asks(save=save > 0, stop=stop > 0))
