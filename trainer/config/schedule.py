"""Compute the learning rate over a training: a warm-up, then steps down.

The rate depends on the place in the training alone, so that resuming is exact.

Linear scaling and gradual warm-up: Goyal et al. (2017), "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour",
sections 2.1 and 2.2; the fifth article scales so from 0.1 on one GPU to 6.4 on 64. The steps are those of MXNet's
example, --lr-factor and --lr-step-epochs.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The rate at every place of a training."""

    start: float
    """Rate at the start of the warm-up."""
    peak: float
    """Rate after the warm-up."""
    warmup_epochs: float = 0.0
    factor: float = 0.1
    """What each step multiplies the rate by."""
    step_epochs: tuple[int, ...] = ()
    """Epochs, counted from 0, that begin with a step."""

    def rate(self, *, epoch: int, trained: float) -> float:
        """Return the rate of the step at whose end this share of the epoch, from 0 to 1, is trained."""
        rate = self.peak
        if epoch + trained < self.warmup_epochs:
            rate = self.start + (self.peak - self.start) * (epoch + trained) / self.warmup_epochs
        return rate * self.factor ** sum(epoch >= step for step in self.step_epochs)
