"""A training's state as a checkpoint has it: the network's own names, and momentum in the order of its weights."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import torch
from torch import nn

from trainer.engines import State
from trainer.engines.vectors import flattened, parts
from trainer.errors import TrainerError

MOMENTUM: Final = "momentum"
SCALE: Final = "loss_scale"
"""Names in a checkpoint."""
VECTOR: Final = "/"
"""Momentum among what is copied: no weight has a name with a slash."""


def pack(
    copies: Mapping[str, torch.Tensor],
    parameters: Sequence[nn.Parameter],
    *,
    channels_last: bool,
    more: Mapping[str, np.ndarray],
) -> State:
    """Return what a checkpoint keeps of copies on the host, with ``more`` of the optimizer's."""
    momentum = copies[VECTOR]
    if channels_last:
        # Put in order on the host: a GPU's memory may be full.
        momentum = flattened(parts(momentum, parameters, channels_last=True))
    weights = {name: value.contiguous().numpy() for name, value in copies.items() if name != VECTOR}
    return State(weights=weights, optimizer={MOMENTUM: momentum.numpy(), **more})


def load_weights(model: nn.Module, state: State) -> None:
    """Give the network a checkpoint's weights and buffers. Raises TrainerError when they are another network's."""
    own = model.state_dict()
    if {name: value.shape for name, value in own.items()} != {n: v.shape for n, v in state.weights.items()}:
        raise TrainerError("the checkpoint is of a network with other weights: --resume never begins anew")
    for name, value in state.weights.items():
        own[name].copy_(torch.from_numpy(value.copy()))
