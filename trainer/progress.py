"""Define the position of a run, and the sums of its current epoch; a checkpoint stores both besides the weights."""

import math
from dataclasses import dataclass, replace

from trainer.errors import TrainerError


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """A position between two steps, the same on all ranks."""

    run_started_at: float = 0.0
    """Start time of the training run, in seconds since 1970 on rank 0's clock. It identifies the run, which later jobs
    may continue; World.job_id names the job."""
    epoch: int = 0
    """The current epoch, counted from 0."""
    samples: int = 0
    """Samples of this epoch that all ranks have trained on."""
    loss_sum: float = 0.0
    """Sum of the loss over these samples."""
    correct: int = 0
    """Number of these samples that the network classified correctly."""

    @property
    def position(self) -> tuple[float, int, int]:
        """Return the sort key of positions: a later run, or a later step of the same run, is greater."""
        return self.run_started_at, self.epoch, self.samples

    def add_loss(self, loss_sum: float, *, batch: int) -> "Progress":
        """Add the loss of a batch. Raises TrainerError if it is not finite, so that no checkpoint stores the result.

        The weights are still good: the caller has not updated them yet, or the backend has skipped the update.
        """
        if not math.isfinite(loss_sum):
            raise TrainerError(
                f"loss is {loss_sum} at epoch {self.epoch} batch {batch}, "
                "try a lower --lr; after the first epoch, also pass --resume never"
            )
        return replace(self, loss_sum=self.loss_sum + loss_sum)
