"""The learning rate over a training: a warm-up, then steps down.

It is a function of the place alone, so that resume is exact.

Linear scaling and gradual warm-up: Goyal et al. (2017), "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour",
sections 2.1 and 2.2; the fifth article scales so from 0.1 on one GPU to 6.4 on 64. The steps are those of MXNet's
example, --lr-factor and --lr-step-epochs.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The rate at every place of a training."""

    start: float
    """Where the warm-up comes from."""
    peak: float
    """After the warm-up."""
    warmup_epochs: float = 0.0
    factor: float = 0.1
    """What each step multiplies the rate by."""
    step_epochs: tuple[int, ...] = ()
    """Epochs, counted from 0, at whose beginning there is a step."""

    def rate(self, *, epoch: int, trained: float) -> float:
        """Return the rate of the step at whose end this part of the epoch, from 0 to 1, is trained."""
        rate = self.peak
        if epoch + trained < self.warmup_epochs:
            rate = self.start + (self.peak - self.start) * (epoch + trained) / self.warmup_epochs
        return rate * self.factor ** sum(epoch >= step for step in self.step_epochs)


class TakesRate(Protocol):
    """What can be told a learning rate."""

    def set_learning_rate(self, rate: float) -> None:
        """Use it from the next update on."""


class Rates:
    """Tells an engine its rate at first, and when that changes."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._now: float | None = None
        """Not known: an engine that goes on from a checkpoint has that one's."""

    def set(self, engine: TakesRate, *, epoch: int, trained: float) -> None:
        """Bring the engine to the rate of this place; see Schedule.rate."""
        rate = self._schedule.rate(epoch=epoch, trained=trained)
        if rate != self._now:
            engine.set_learning_rate(rate)
            self._now = rate
