"""Which device a process computes on, and with how many threads."""

import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence

import torch

from trainer.config import TrainConfig
from trainer.errors import UsageError
from trainer.ranks import Ranks, describe_process

log = logging.getLogger(__name__)


def prepare_device(config: TrainConfig, ranks: Ranks, environment: MutableMapping[str, str]) -> torch.device:
    """Choose this process's device and threads, say so, and let it compute in float32 where it is told to.

    What a GPU's libraries read when they begin is set in ``environment``, the process's own. Raises UsageError.
    """
    set_threads(ranks, environment)
    device = torch.device(choose_device(config.gpus, ranks=ranks, available=torch.cuda.device_count()))
    log.info("%s device=%s threads=%d", describe_process(environment), device, torch.get_num_threads())
    if device.type == "cuda":
        # Convolutions are measured, once for each shape: the shapes of a training do not change.
        torch.backends.cudnn.benchmark = True
        if config.deterministic:
            make_deterministic(environment)
        torch.cuda.set_device(device)
        # By default cuDNN rounds the factors of convolutions to 10 bits (TF32): that is not float32.
        torch.backends.cudnn.allow_tf32 = False
    elif config.compile == "graphs":
        raise UsageError(f"--compile graphs records what a GPU does, this rank computes on {device}: 1 compiles alone")
    return device


def make_deterministic(environment: MutableMapping[str, str]) -> None:
    """Let GPUs give the same bits every time (PyTorch's documentation, "Reproducibility"); before any computes.

    An operation that cannot then raises RuntimeError.
    """
    # Read when cuBLAS begins; without, two streams may share its workspace (cuBLAS's documentation, "Results
    # reproducibility").
    environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Fills what torch.empty() returns, which nobody reads.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # documented, and without a type
    torch.backends.cudnn.benchmark = False


def seed_device(number: int, device: torch.device) -> None:
    """Begin the random numbers of the CPU and of this device anew."""
    # Not torch.manual_seed(), which asks for every kind of device: a tenth of a millisecond in every step.
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)


def set_threads(ranks: Ranks, environment: Mapping[str, str]) -> None:
    """Share the machine's cores among its processes, unless the user set OMP_NUM_THREADS."""
    if "OMP_NUM_THREADS" not in environment:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks.local_world_size))


def choose_device(gpus: Sequence[int], *, ranks: Ranks, available: int) -> str:
    """Return the device of this process: one of ``gpus``, or of all GPUs, or else the CPU."""
    if not gpus and not available:
        return "cpu"
    if gpus and len(gpus) != ranks.local_world_size:
        raise UsageError(
            f"--gpus needs one process a GPU on each machine, got {len(gpus)} GPUs "
            f"and {ranks.local_world_size} processes"
        )
    gpu = gpus[ranks.local_rank] if gpus else ranks.local_rank
    if gpu >= available:
        raise UsageError(f"no GPU {gpu} on this machine, torch sees {available}")
    return f"cuda:{gpu}"
