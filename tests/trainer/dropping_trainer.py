"""The trainer with a fault: every rank leaves out one all-reduce of gradients."""

from unittest.mock import patch

import torch

from trainer.engines.collective import Collective
from trainer.main import main_and_leave

DROPPED_CALL = 5


class Dropping(Collective):
    calls = 0

    def all_reduce(self, sums: torch.Tensor, *, gc_type: str = "none") -> None:
        self.calls += 1
        if self.calls != DROPPED_CALL:
            super().all_reduce(sums, gc_type=gc_type)


if __name__ == "__main__":
    with patch("trainer.engines.torch.Collective", Dropping):
        main_and_leave()
