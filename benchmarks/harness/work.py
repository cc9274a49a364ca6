"""Define what each worker does in a round of the trainer's benchmarks."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Describe a round's work, which is the same for ours and its peers."""

    batch_size: int
    """Batch size of each worker."""
    steps: int
    """Steps of an epoch."""
    epochs: int
    window: int
    """Number of steps that are timed together: a short window is less likely to be disturbed."""

    @property
    def windows(self) -> int:
        """Number of windows of a round; the worker prints one speed line per window."""
        return self.epochs * (self.steps // self.window)


WORK = {
    "lenet": Work(batch_size=32, steps=100, epochs=4, window=10),
    "resnet110": Work(batch_size=16, steps=16, epochs=2, window=2),
}
