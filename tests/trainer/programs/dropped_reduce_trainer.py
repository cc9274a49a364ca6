"""Run the trainer with a fault: every rank skips one all-reduce of gradients."""

from unittest.mock import patch

import torch

from trainer.distributed.reduce.reducers import Communicator
from trainer.train import main_and_exit

DROPPED_STEP = 2
GRADIENTS = 10_000
"""Number of values that only the sum of gradients exceeds."""


class Dropping(Communicator):
    steps = 0

    def all_reduce(self, sums: torch.Tensor, *, compression: str = "none") -> None:
        self.steps += sums.numel() > GRADIENTS
        if sums.numel() <= GRADIENTS or self.steps != DROPPED_STEP:
            super().all_reduce(sums, compression=compression)


if __name__ == "__main__":
    with patch("trainer.torch_backend.create_backend.Communicator", Dropping):
        main_and_exit()
