"""Create the PyTorch backend: choose the device, build the network, connect the ranks."""

import copy
import os
from collections.abc import Mapping
from datetime import timedelta

import torch

from trainer.backend import InitializedFramework
from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.process_groups import create_process_groups
from trainer.distributed.reduce.compressed import TYPES
from trainer.distributed.reduce.reducers import Communicator
from trainer.distributed.reduce.ring_rendezvous import connect_ring
from trainer.distributed.rendezvous import RENDEZVOUS_TIMEOUT, join_ranks
from trainer.distributed.world import World
from trainer.metrics.flops import count_flops
from trainer.models import build
from trainer.timeouts import rendezvous_timeout_s
from trainer.torch_backend.autotune import Autotuner
from trainer.torch_backend.backend import StepSettings, TorchBackend
from trainer.torch_backend.compute_mode import configured_mode
from trainer.torch_backend.device import prepare_device
from trainer.torch_backend.reducer_setup import choose_reduction


def init(config: TrainConfig, environment: Mapping[str, str]) -> InitializedFramework:
    """Read the rank from torchrun's variables; only create_backend() connects to the other ranks."""
    return InitializedFramework(world=World.from_environment(environment), create_backend=create_backend)


def create_backend(config: TrainConfig, *, world: World, dp: DataParallelGroup, learning_rate: float) -> TorchBackend:
    """Build the network on this rank's device, and connect to the other ranks unless it trains its own model."""
    device = prepare_device(config, world, os.environ)
    torch.manual_seed(config.seed)
    # Build before connecting: an error in the network is then reported without waiting for the other ranks.
    model = build(config.network, num_classes=config.resolved_num_classes, image_shape=config.input_shape)
    configured = configured_mode(config, model, device)
    flops_per_sample = count_flops(model, config.input_shape) if device.type == "cuda" else None
    reduction = choose_reduction(config, device)
    ring = groups = None
    if dp.world_size > 1:
        timeout = timedelta(seconds=rendezvous_timeout_s(config))
        join_ranks(device, world=world, timeout=timeout)
        ring = connect_ring(world, timeout=RENDEZVOUS_TIMEOUT) if reduction == "ring" else None
        if config.gradient_compression in TYPES:
            groups = create_process_groups(world, device=device, timeout=timeout)
    communicator = Communicator(world_size=dp.world_size, ring=ring, groups=groups)
    settings = StepSettings(
        learning_rate=learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        decay_all=config.wd_all,
        sync_bn=config.sync_bn,
        accumulation=config.gradient_accumulation,
        label_smoothing=config.label_smoothing,
        ddp=reduction == "ddp",
        compression=config.gradient_compression if groups is not None else "none",
        is_deferred=device.type == "cuda",
    )
    autotune = None
    if config.needs_autotune:
        # Only restore() measures, once the ranks know whether their checkpoint already has a mode.
        autotune = Autotuner(
            config=config,
            settings=settings,
            configured=configured,
            model=copy.deepcopy(model),
            device=device,
            world=world,
            dp=dp,
            communicator=communicator,
        ).pick_mode
    return TorchBackend(
        model,
        settings,
        device=device,
        dp=dp,
        communicator=communicator,
        mode=configured,
        autotune=autotune,
        flops_per_sample=flops_per_sample,
    )
