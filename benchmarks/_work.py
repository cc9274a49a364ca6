"""What each worker of the trainer's benchmarks does in a round."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The same for ours and for its peers."""

    batch_size: int
    """Of each worker."""
    steps: int
    """Of an epoch."""
    epochs: int
    window: int
    """Steps that are timed together: the shorter, the likelier that nothing disturbs one."""


WORK = {
    "lenet": Work(batch_size=32, steps=100, epochs=4, window=10),
    "resnet110": Work(batch_size=16, steps=16, epochs=2, window=2),
}
