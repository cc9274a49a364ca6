"""Run the trainer on CPUs as on GPUs: gradients are sent in buckets during the backward pass.

On request, add a fault at the bucket of that number: every rank leaves it out (DROPPED_BUCKET) or is asked to stop
(LAST_BUCKET). With NODES, run on nodes as in multi_node_trainer. With ``--reduction ddp``, the number is the step's.
"""

import os
from unittest.mock import patch

from tests.trainer.programs.multi_node_trainer import NODES, take_place
from tests.trainer.programs.stopped_trainer import send_sigterm
from trainer.distributed.reduce.gradient_buckets import GradientBuckets
from trainer.distributed.reduce.reducers import DdpReducer
from trainer.train import main_and_exit

BUCKET_BYTES = 1000
"""Bucket size that gives tests.trainer.networks.batch_norm_network three buckets."""
DROPPED = "DROPPED_BUCKET"
LAST = "LAST_BUCKET"


class Faulty(GradientBuckets):
    calls = 0

    def _send_next(self) -> None:
        Faulty.calls += 1
        if Faulty.calls == int(os.environ.get(LAST, 0)):
            send_sigterm()
        if Faulty.calls == int(os.environ.get(DROPPED, 0)):
            self._num_sent += 1
        else:
            super()._send_next()


class FaultyDdpReducer(DdpReducer):
    steps = 0

    def finish(self) -> None:
        FaultyDdpReducer.steps += 1
        if FaultyDdpReducer.steps == int(os.environ.get(LAST, 0)):
            send_sigterm()
        super().finish()


if __name__ == "__main__":
    if NODES in os.environ:
        take_place()
    with (
        patch("trainer.torch_backend.create_backend.connect_ring", lambda *_, **__: None),
        patch("trainer.distributed.reduce.gradient_buckets.BUCKET_BYTES", BUCKET_BYTES),
        patch("trainer.torch_backend.reducer_setup.GradientBuckets", Faulty),
        patch("trainer.torch_backend.reducer_setup.DdpReducer", FaultyDdpReducer),
    ):
        main_and_exit()
