"""Convert a run's state to and from a checkpoint's: weights by the network's names, momentum in their order."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import torch
from torch import nn

from trainer.backend import TrainingState
from trainer.errors import TrainerError
from trainer.torch_backend.flat_params import flatten, views

MOMENTUM: Final = "momentum"
SCALE: Final = "loss_scale"
"""Names in a checkpoint."""
MOMENTUM_COPY_KEY: Final = "/"
"""Key of the momentum among the copied tensors; no weight has a name with a slash."""


def pack_state(
    copies: Mapping[str, torch.Tensor],
    parameters: Sequence[nn.Parameter],
    *,
    network_order: Sequence[int],
    channels_last: bool,
    optimizer: Mapping[str, np.ndarray],
) -> TrainingState:
    """Return the state of these host copies; ``optimizer`` contains the rest of the optimizer's state.

    ``network_order`` lists the indices into ``parameters`` in the network's order.
    """
    # Reorder on the host, because a GPU's memory may be full.
    parts = views(copies[MOMENTUM_COPY_KEY], parameters, channels_last=channels_last)
    momentum = flatten([parts[index] for index in network_order])
    weights = {name: value.contiguous().numpy() for name, value in copies.items() if name != MOMENTUM_COPY_KEY}
    return TrainingState(weights=weights, optimizer={MOMENTUM: momentum.numpy(), **optimizer})


def load_weights(model: nn.Module, state: TrainingState) -> None:
    """Load a checkpoint's weights and buffers. Raises TrainerError if they belong to another network."""
    own = model.state_dict()
    if {name: value.shape for name, value in own.items()} != {n: v.shape for n, v in state.weights.items()}:
        raise TrainerError("the checkpoint is of a network with other weights; to start over, pass --resume never")
    for name, value in state.weights.items():
        own[name].copy_(torch.from_numpy(value.copy()))
