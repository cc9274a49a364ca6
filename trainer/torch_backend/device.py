"""Choose the device of a process, and its number of threads."""

import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence

import torch

from trainer.config.settings import TrainConfig
from trainer.distributed.world import World, describe_process
from trainer.errors import UsageError

log = logging.getLogger(__name__)


def prepare_device(config: TrainConfig, world: World, environment: MutableMapping[str, str]) -> torch.device:
    """Choose and configure this process's device and threads, and log them. Raises UsageError.

    Sets variables in ``environment``, the process's own, that CUDA libraries read at their start.
    """
    set_threads(world, environment)
    device = torch.device(choose_device(config.gpus, world=world, available=torch.cuda.device_count()))
    log.info("%s device=%s threads=%d", describe_process(environment), device, torch.get_num_threads())
    if device.type == "cuda":
        # Time the convolution algorithms once per shape: a run has few shapes.
        torch.backends.cudnn.benchmark = True
        if config.deterministic:
            make_deterministic(environment)
        torch.cuda.set_device(device)
        # With TF32, tensor cores round the factors of convolutions and matrix products to 10 bits. Only an explicit
        # --dtype float32 is exact.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = config.dtype != "float32"
    elif config.compile == "graphs":
        raise UsageError(f"--compile graphs needs a GPU, this rank uses {device}; use --compile 1")
    return device


def make_deterministic(environment: MutableMapping[str, str]) -> None:
    """Make GPUs compute the same bits every time (PyTorch, "Reproducibility"); call it before any work.

    An operation without a deterministic implementation then raises RuntimeError.
    """
    # Read when cuBLAS starts; without it two streams may share a workspace (cuBLAS documentation, "Results
    # reproducibility").
    environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Leave the memory of torch.empty() uninitialized: nothing reads it.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # documented, and without a type
    torch.backends.cudnn.benchmark = False


def seed_device(number: int, device: torch.device) -> None:
    """Seed the random numbers of the CPU and of this device."""
    # Do not use torch.manual_seed(), which checks every kind of device and takes 0.1 ms per step.
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)


def set_threads(world: World, environment: Mapping[str, str]) -> None:
    """Divide the machine's cores among its processes, unless the user set OMP_NUM_THREADS."""
    if "OMP_NUM_THREADS" not in environment:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world.local_world_size))


def choose_device(gpus: Sequence[int], *, world: World, available: int) -> str:
    """Return this process's device: one of ``gpus``, or of all GPUs, or the CPU."""
    if not gpus and not available:
        return "cpu"
    if gpus and len(gpus) != world.local_world_size:
        raise UsageError(
            f"--gpus needs one process per GPU on each machine, got {len(gpus)} GPUs "
            f"and {world.local_world_size} processes"
        )
    gpu = gpus[world.local_rank] if gpus else world.local_rank
    if gpu >= available:
        raise UsageError(f"no GPU {gpu} on this machine, torch sees {available}")
    return f"cuda:{gpu}"
