"""How far a training has come: what a checkpoint needs besides the weights."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """A place between two steps. All ranks have the same."""

    started: float = 0.0
    """When the training began, in seconds since 1970 on rank 0's clock: tells one training from another."""
    epoch: int = 0
    """The one under way; they count from 0."""
    samples: int = 0
    """Of this epoch that all ranks have trained on."""
    loss_sum: float = 0.0
    """Over these samples."""
    correct: int = 0
    """Of these samples."""

    @property
    def place(self) -> tuple[float, int, int]:
        """What is greater is newer: a later training, or the same one at a later step."""
        return self.started, self.epoch, self.samples
