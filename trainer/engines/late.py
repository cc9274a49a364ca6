"""Figures of a step that nobody waits for: a GPU that computes them is a step behind the processor that asks.

To read a number off a GPU is to wait until it has nothing left to do, and then it stands still until the next
operations come. So the figures of a step are read in the next one, while that is computed; only where they are wanted
at once, every so many batches and for a checkpoint, are they waited for.
"""

import time
from collections.abc import Callable
from typing import Final

import torch

from trainer.engines import Asks, BatchResult
from trainer.errors import TrainerError

POLL_S: Final = 0.0002


class Figures:
    """Results of steps on their way from the device. Those that are not ``late`` are read at once, as on a CPU."""

    def __init__(self, *, late: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._late = late
        self._clock = clock
        self._waiting: tuple[torch.Tensor, torch.cuda.Event | None] | None = None

    def push(self, figures: torch.Tensor, *, timeout_s: float) -> BatchResult | None:
        """Send a step's loss, wishes to save and to stop of all ranks, and what this one recognised: shape (4,).

        Returns that result, or if it is late that of the step before, if there was one. Raises TrainerError when the
        device does not come to its end for ``timeout_s``: a rank that it waits for is gone.
        """
        if not self._late:
            return _result(figures)
        sent = _send(figures)
        before, self._waiting = self._waiting, sent
        return None if before is None else self._read(before, timeout_s)

    def settle(self, *, timeout_s: float) -> BatchResult | None:
        """Return the result that has not been read, if there is one."""
        waiting, self._waiting = self._waiting, None
        return None if waiting is None else self._read(waiting, timeout_s)

    def _read(self, sent: tuple[torch.Tensor, torch.cuda.Event | None], timeout_s: float) -> BatchResult:
        figures, event = sent
        deadline = self._clock() + timeout_s
        # Not synchronize(): NCCL's operations wait for lost ranks without an end.
        while event is not None and not event.query():  # type: ignore[no-untyped-call]
            if self._clock() >= deadline:
                raise TrainerError(f"the GPU has not ended a step for {timeout_s:.0f} s, another rank may be lost")
            time.sleep(POLL_S)
        return _result(figures)


def _send(figures: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    """Copy to the host's memory, behind all that the device has been asked for so far."""
    if figures.device.type != "cuda":
        return figures.clone(), None
    sent = torch.empty(figures.shape, dtype=figures.dtype, pin_memory=True)
    sent.copy_(figures, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return sent, event


def _result(figures: torch.Tensor) -> BatchResult:
    loss_sum, save, stop, correct = figures.tolist()
    return BatchResult(loss_sum=loss_sum, correct=int(correct), asks=Asks(save=save > 0, stop=stop > 0))
