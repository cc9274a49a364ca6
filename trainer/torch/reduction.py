"""Choose what sums a step's gradients over all ranks: DistributedDataParallel, buckets of our own, or the ring."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from trainer.config.settings import TrainConfig
from trainer.distributed.reduce.collective import Collective
from trainer.distributed.reduce.ddp import DataParallel
from trainer.distributed.reduce.gradient_buckets import GradientBuckets
from trainer.errors import UsageError
from trainer.torch.compute_mode import ComputeMode
from trainer.torch.flat_params import FlatParams, bind_gradients
from trainer.torch.optimizer import ParamGroup

log = logging.getLogger(__name__)


def choose_reduction(config: TrainConfig, device: torch.device) -> str:
    """Return what sums gradients: what the settings say, or what suits the device."""
    if config.reduction == "auto":
        if device.type == "cpu":
            return "ring"
        # DistributedDataParallel sorts its buckets anew in a resumed run, and compresses nothing.
        return "buckets" if config.deterministic or config.gc_type != "none" else "ddp"
    if config.reduction == "ring" and device.type != "cpu":
        raise UsageError(f"--reduction ring is for CPUs, this rank computes on {device}: auto, ddp or buckets")
    return config.reduction


class Reduction(NamedTuple):
    """What sums the gradients, and what depends on where they lie."""

    sum: DataParallel | GradientBuckets
    network: nn.Module
    """What the forward pass calls."""
    groups: Sequence[ParamGroup]
    """What the optimizer updates."""


def use_ddp(
    model: nn.Module, flat: FlatParams, sums: torch.Tensor, *, collective: Collective, weight_decay: float
) -> Reduction:
    """Let DistributedDataParallel keep and sum the gradients; ``sums`` are the values beside them."""
    ddp = DataParallel(model, sums, flat.parameters, collective=collective)
    return Reduction(ddp, ddp.module, flat.groups(weight_decay=weight_decay))


def use_flat_gradients(
    model: nn.Module,
    flat: FlatParams,
    sums: torch.Tensor,
    *,
    collective: Collective,
    weight_decay: float,
    mode: ComputeMode,
    gc_type: str,
) -> Reduction:
    """Keep the gradients at the beginning of ``sums`` and sum it, in buckets or around the ring."""
    gradients = sums[: flat.weights.numel()]
    bind_gradients(flat.parameters, gradients, channels_last=mode.channels_last)
    buckets = GradientBuckets(sums, flat.parameters, collective=collective, gc_type=gc_type)
    if mode.is_compiled and collective.overlaps:
        log.warning(
            "torch.compile delivers all gradients when the backward pass ends, so they do not travel during it; with "
            "--reduction ddp they do"
        )
    return Reduction(buckets, model, flat.flat_groups(gradients, weight_decay=weight_decay))
