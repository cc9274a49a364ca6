"""Compute the learning rate over a run: warm-up, then steps or half a cosine.

The rate depends only on the position in the run, so that a resumed run gets the same rates.

Linear scaling and gradual warm-up: Goyal et al. (2017), "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour",
sections 2.1 and 2.2; "Distributed Learning with Apache MXNet and Horovod" scales likewise, from 0.1 on one GPU to 6.4
on 64. Steps: --lr-factor and --lr-step-epochs of MXNet's example. Cosine: Loshchilov and Hutter (2017), "SGDR", without
restarts.
"""

import math
from dataclasses import dataclass
from typing import Final

DEFAULT_LR: Final = 0.05
"""Learning rate for a global batch of DEFAULT_LR_BATCH_SIZE."""
DEFAULT_LR_BATCH_SIZE: Final = 64
MAX_DEFAULT_LR: Final = 0.1
"""Highest default rate without warm-up; above it LeNet with momentum may diverge."""


def warmup_lrs(
    lr: float | None, lr_batch_size: int | None, *, global_batch_size: int, async_batch_size: int | None, warms_up: bool
) -> tuple[float, float]:
    """Return the rates at the start and at the end of the warm-up; None for ``lr`` means the default.

    ``async_batch_size``: batch size of a single update with dist_async, whose default rate is divided by the number of
    machines; None otherwise.
    """
    rate, batch = (lr, lr_batch_size) if lr is not None else (DEFAULT_LR, DEFAULT_LR_BATCH_SIZE)
    peak = rate * global_batch_size / batch if batch else rate
    if lr is None and async_batch_size is not None:
        async_rate = min(rate * async_batch_size / DEFAULT_LR_BATCH_SIZE, MAX_DEFAULT_LR)
        peak = async_rate * async_batch_size / global_batch_size
    elif lr is None and not warms_up:
        peak = min(peak, MAX_DEFAULT_LR)
    return min(rate, peak) if batch else 0.0, peak


@dataclass(frozen=True, kw_only=True, slots=True)
class LRSchedule:
    """The learning rate as a function of the position in a run."""

    start: float
    """Rate at the start of the warm-up."""
    peak: float
    """Rate after the warm-up."""
    warmup_epochs: float = 0.0
    factor: float = 0.1
    """Factor by which every step multiplies the rate."""
    step_epochs: tuple[int, ...] = ()
    """Epochs, counted from 0, at whose start the rate falls by ``factor``."""
    cosine_epochs: int | None = None
    """Epoch at which the cosine reaches 0; None for decay in steps."""

    def lr(self, *, epoch: int, epoch_fraction: float) -> float:
        """Return the rate for the step that brings the epoch to ``epoch_fraction``, from 0 to 1."""
        rate = self.peak
        if epoch + epoch_fraction < self.warmup_epochs:
            rate = self.start + (self.peak - self.start) * (epoch + epoch_fraction) / self.warmup_epochs
        elif self.cosine_epochs is not None:
            share = (epoch + epoch_fraction - self.warmup_epochs) / max(self.cosine_epochs - self.warmup_epochs, 1e-9)
            return rate * (1 + math.cos(math.pi * min(share, 1.0))) / 2
        return rate * self.factor ** sum(epoch >= step for step in self.step_epochs)
