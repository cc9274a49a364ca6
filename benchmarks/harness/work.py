"""Define a worker's task in a round of the trainer's benchmarks."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Task of a round, the same for our trainer and the baselines."""

    batch_size: int
    """Batch size of each worker."""
    steps: int
    """Steps per epoch."""
    epochs: int
    window: int
    """Number of steps timed together; a short window is less likely to be disturbed."""

    @property
    def windows(self) -> int:
        """Number of windows of a round; the worker prints one speed line per window."""
        return self.epochs * (self.steps // self.window)


WORK = {
    "lenet": Work(batch_size=32, steps=100, epochs=4, window=10),
    "resnet110": Work(batch_size=16, steps=16, epochs=2, window=2),
}
