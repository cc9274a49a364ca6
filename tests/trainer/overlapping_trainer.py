"""The trainer between CPUs as it is between GPUs: gradients travel in buckets while the backward pass runs.

On request with a fault, at the bucket of that number: every rank leaves it out (DROPPED_BUCKET), or is told to stop
(LAST_BUCKET). With NODES on nodes as tests.trainer.nodes_trainer's.
"""

import os
import signal
from unittest.mock import patch

from tests.trainer.nodes_trainer import NODES, take_place
from trainer.engines.reduction import Reduction
from trainer.main import main_and_leave

BUCKET_BYTES = 1000
"""Of tests.trainer.networks.normalised: three buckets."""
DROPPED = "DROPPED_BUCKET"
LAST = "LAST_BUCKET"


class Faulty(Reduction):
    calls = 0

    def _send(self) -> None:
        Faulty.calls += 1
        if Faulty.calls == int(os.environ.get(LAST, 0)):
            os.kill(os.getpid(), signal.SIGTERM)
        if Faulty.calls == int(os.environ.get(DROPPED, 0)):
            self._sent += 1
        else:
            super()._send()


if __name__ == "__main__":
    if NODES in os.environ:
        take_place()
    with (
        patch("trainer.engines.torch.connect_ring", lambda *_, **__: None),
        patch("trainer.engines.reduction.BUCKET_BYTES", BUCKET_BYTES),
        patch("trainer.engines.torch.Reduction", Faulty),
    ):
        main_and_leave()
