"""The trainer between CPUs as it is between GPUs: gradients travel in buckets while the backward pass runs.

With the fault that DROPPED_BUCKET numbers: every rank leaves out that one of all its buckets.
"""

import os
from unittest.mock import patch

from trainer.engines.reduction import Reduction
from trainer.main import main_and_leave

BUCKET_BYTES = 1000
"""Of tests.trainer.networks.normalised: three buckets."""
DROPPED = "DROPPED_BUCKET"


class Dropping(Reduction):
    calls = 0

    def _send(self) -> None:
        Dropping.calls += 1
        if Dropping.calls == int(os.environ.get(DROPPED, 0)):
            self._sent += 1
        else:
            super()._send()


if __name__ == "__main__":
    with (
        patch("trainer.engines.torch.connect_ring", lambda *_, **__: None),
        patch("trainer.engines.reduction.BUCKET_BYTES", BUCKET_BYTES),
        patch("trainer.engines.torch.Reduction", Dropping),
    ):
        main_and_leave()
