"""Test that a compiled network keeps the overlap of gradients, or says that it is lost."""

import pytest
import torch
from torch import nn

from trainer.distributed.reduce.reducers import Communicator, Ring
from trainer.torch_backend.compute_mode import DEFAULT_MODE, ComputeMode
from trainer.torch_backend.flat_params import FlatParams
from trainer.torch_backend.reducer_setup import make_flat_reduction

COMPILED = ComputeMode(compile_mode="1")
LOST = (
    "with torch.compile, gradients are ready only when the backward pass ends, so sending them does not overlap with "
    "it; use --reduction ddp to overlap them"
)


@pytest.mark.parametrize(
    ("mode", "communicator", "warnings"),
    [
        (COMPILED, Communicator(world_size=2), [LOST]),
        (ComputeMode(compile_mode="graphs"), Communicator(world_size=2), [LOST]),
        (DEFAULT_MODE, Communicator(world_size=2), []),
        # These have no overlap to lose.
        (COMPILED, Communicator(world_size=2, ring=Ring.__new__(Ring)), []),
        (COMPILED, Communicator(world_size=1), []),
    ],
)
def test_warns_only_if_compiling_loses_the_overlap_of_buckets(
    caplog: pytest.LogCaptureFixture, mode: ComputeMode, communicator: Communicator, warnings: list[str]
) -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    flat = FlatParams(model, decay_all=False)
    make_flat_reduction(
        model,
        flat,
        torch.zeros(flat.weights.numel() + 1),
        communicator=communicator,
        weight_decay=0.0,
        mode=mode,
        compression="none",
    )
    assert caplog.messages == warnings
