"""Set up the reducer that sums the gradients: DistributedDataParallel, the ring between CPUs, or built-in buckets."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from trainer.config.settings import TrainConfig
from trainer.distributed.reduce.gradient_buckets import GradientBuckets
from trainer.distributed.reduce.reducers import Communicator, DdpReducer, FlatReducer
from trainer.errors import UsageError
from trainer.torch_backend.compute_mode import ComputeMode
from trainer.torch_backend.flat_params import FlatParams, bind_gradients
from trainer.torch_backend.optimizer import ParamGroup

log = logging.getLogger(__name__)


def choose_reduction(config: TrainConfig, device: torch.device) -> str:
    """Return the --reduction of the settings; for auto, the reduction that suits the device."""
    if config.reduction == "auto":
        if device.type == "cpu":
            return "ring"
        # DistributedDataParallel reorders its buckets after the first step, so a resumed run would round differently,
        # and it does not compress.
        return "buckets" if config.deterministic or config.gradient_compression != "none" else "ddp"
    if config.reduction == "ring" and device.type != "cpu":
        raise UsageError(f"--reduction ring requires CPUs, this rank computes on {device}: use auto, ddp or buckets")
    return config.reduction


class GradientReduction(NamedTuple):
    """The reducer of the gradients, with the module and the parameters that go with it."""

    reducer: DdpReducer | FlatReducer
    module: nn.Module
    """The network as the forward pass calls it: compiled, or wrapped by DistributedDataParallel."""
    param_groups: Sequence[ParamGroup]
    """Parameters for the optimizer, with their gradients."""


def make_ddp_reduction(
    model: nn.Module, flat: FlatParams, sums: torch.Tensor, *, communicator: Communicator, weight_decay: float
) -> GradientReduction:
    """Let DistributedDataParallel own and sum the gradients; ``sums`` contains the other values to sum."""
    ddp = DdpReducer(model, sums, flat.parameters, communicator=communicator)
    return GradientReduction(ddp, ddp.module, flat.groups(weight_decay=weight_decay))


def make_flat_reduction(
    model: nn.Module,
    flat: FlatParams,
    sums: torch.Tensor,
    *,
    communicator: Communicator,
    weight_decay: float,
    mode: ComputeMode,
    compression: str,
) -> GradientReduction:
    """Put the gradients at the beginning of ``sums``, which is summed around the ring, or in buckets or compressed."""
    gradients = sums[: flat.weights.numel()]
    bind_gradients(flat.parameters, gradients, channels_last=mode.channels_last)
    reducer = FlatReducer(sums, communicator=communicator)
    if communicator.overlaps or compression != "none":
        reducer = GradientBuckets(sums, flat.parameters, communicator=communicator, compression=compression)
    if mode.is_compiled and communicator.overlaps:
        log.warning(
            "with torch.compile, gradients are ready only when the backward pass ends, so sending them does not "
            "overlap with it; use --reduction ddp to overlap them"
        )
    return GradientReduction(reducer, model, flat.flat_groups(gradients, weight_decay=weight_decay))
