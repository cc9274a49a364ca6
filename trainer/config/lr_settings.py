"""Define and check the settings of the learning rate."""

import math
from dataclasses import dataclass

from trainer.config.choices import LR_SCHEDULES, check_choice, format_value
from trainer.errors import UsageError


# Without slots, because TrainConfig has two such bases and Python allows slots in only one base.
@dataclass(frozen=True, kw_only=True)
class LRSettings:
    """Settings of the learning rate and its schedule."""

    lr: float | None = None
    """Rate for a global batch of lr_batch_size. Default: 0.05 for a batch of 64, at most 0.1 without warm-up."""
    lr_batch_size: int | None = None
    """Global batch size that lr is for; the rate scales with the batch. Default: use lr as it is."""
    warmup_epochs: float = 0.0
    """Epochs over which the rate grows to its full value."""
    lr_factor: float = 0.1
    """Factor that multiplies the rate at each of lr_step_epochs."""
    lr_schedule: str = "step"
    """Decay of the rate, one of LR_SCHEDULES: steps at lr_step_epochs, or half a cosine to 0 at the end of training."""
    lr_step_epochs: tuple[int, ...] = ()
    """Epochs at which the rate is reduced."""

    def check_lr(self) -> None:
        """Raise UsageError unless learning rate and schedule are valid."""
        check_choice("lr_schedule", self.lr_schedule, LR_SCHEDULES)
        if self.lr_schedule == "cosine" and self.lr_step_epochs:
            raise UsageError(
                f"--lr-step-epochs requires --lr-schedule step, got {format_value(self.lr_step_epochs)} with cosine"
            )
        if self.lr is not None and not (math.isfinite(self.lr) and self.lr > 0):
            raise UsageError(f"--lr must be a number above 0, got {self.lr}")
        if self.lr_batch_size is not None and (self.lr is None or self.lr_batch_size < 1):
            raise UsageError(
                f"--lr-batch-size must be at least 1 and requires --lr, "
                f"got {self.lr_batch_size} and {format_value(self.lr)}"
            )
        if not (math.isfinite(self.warmup_epochs) and self.warmup_epochs >= 0):
            raise UsageError(f"--warmup-epochs must be a number of at least 0, got {self.warmup_epochs}")
        if not 0 < self.lr_factor <= 1:
            raise UsageError(f"--lr-factor must be above 0 and at most 1, got {self.lr_factor}")
        if any(epoch < 1 for epoch in self.lr_step_epochs) or list(self.lr_step_epochs) != sorted(
            set(self.lr_step_epochs)
        ):
            epochs = format_value(self.lr_step_epochs)
            raise UsageError(f"--lr-step-epochs must be increasing and at least 1, got {epochs}")
