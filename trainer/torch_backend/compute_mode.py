"""Define the compute mode of PyTorch: choices for speed that change results only by rounding."""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from trainer.backend import TrainingState
from trainer.config.choices import COMPILE_LEVELS
from trainer.config.settings import TrainConfig
from trainer.errors import first_line
from trainer.models import NETWORKS, ImageShape

log = logging.getLogger(__name__)

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
MODE_KEY: Final = "method"
"""Key of the mode in a checkpoint; predates the term "mode", and is kept for old checkpoints."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeMode:
    """Data type, memory format and compilation of a step."""

    dtype: str = "float32"
    """Data type of convolutions and matrix products, by autocast; weights, sums and statistics stay float32."""
    channels_last: bool = False
    """torch.channels_last memory format, which tensor cores prefer."""
    compile_mode: str = COMPILE_LEVELS[0]
    """Mode of torch.compile, one of COMPILE_LEVELS."""

    def __str__(self) -> str:
        compiled = {"0": (), "1": ("compiled",), "graphs": ("compiled", "graphs")}[self.compile_mode]
        return " ".join((self.dtype, *("channels_last",) * self.channels_last, *compiled))

    @property
    def is_compiled(self) -> bool:
        """Return True if torch.compile is used."""
        return self.compile_mode != COMPILE_LEVELS[0]

    def compile(self, model: nn.Module) -> nn.Module:
        """Return a module that runs the network in this mode.

        With CUDA graphs each new batch size records a graph, and a result is valid until the graph runs again.
        """
        if not self.is_compiled:
            return model
        mode = "reduce-overhead" if self.compile_mode == "graphs" else None
        return torch.compile(model, dynamic=False, mode=mode)  # type: ignore[return-value]  # from a module: a module


DEFAULT_MODE: Final = ComputeMode()


def configured_mode(config: TrainConfig, model: nn.Module, device: torch.device) -> ComputeMode:
    """Return the mode of the settings, with safe defaults for what they leave open.

    On GPUs a network with convolutions gets channels_last, and built-in networks get it everywhere: on one core a step
    of LeNet takes 0.7 of the time, a step of ResNet-110 0.9. A user's network may call ``view`` on activations, which
    fails with channels_last (tutorial "Channels Last Memory Format in PyTorch").
    """
    channels_last = has_convolutions(model) and (
        config.network in NETWORKS or (device.type == "cuda" and takes_channels_last(model, config.input_shape))
    )
    return ComputeMode(
        dtype=config.dtype or DEFAULT_MODE.dtype,
        channels_last=channels_last,
        compile_mode=config.compile if config.compile in COMPILE_LEVELS else COMPILE_LEVELS[0],
    )


def takes_channels_last(model: nn.Module, image_shape: ImageShape) -> bool:
    """Try forward and backward on zero images with channels_last; log if the network fails."""
    # On the CPU and on a copy, because the network may have state that a call changes.
    images = torch.zeros(2, *image_shape).to(memory_format=torch.channels_last)
    try:
        with torch.random.fork_rng(devices=[]):
            copied = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's own documented use
            torch.autograd.backward(copied(images).sum())
    except RuntimeError as error:
        log.info("the network does not take images with channels last: %s", first_line(error))
        return False
    return True


def has_convolutions(model: nn.Module) -> bool:
    """Return True if the network has two-dimensional convolutions, to which channels_last applies."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())


def encode(mode: ComputeMode) -> list[int]:
    """Return the mode as numbers, for the other ranks and for the checkpoint."""
    return [list(DTYPES).index(mode.dtype), mode.channels_last, COMPILE_LEVELS.index(mode.compile_mode)]


def decode(numbers: Sequence[float]) -> ComputeMode:
    """Return the mode that these numbers encode."""
    dtype, channels_last, compile_mode = (int(number) for number in numbers)
    return ComputeMode(
        dtype=list(DTYPES)[dtype], channels_last=bool(channels_last), compile_mode=COMPILE_LEVELS[compile_mode]
    )


def read_mode(state: TrainingState | None) -> ComputeMode | None:
    """Return the mode in a checkpoint, if its run picked one."""
    if state is None or MODE_KEY not in state.optimizer:
        return None
    return decode(state.optimizer[MODE_KEY].tolist())
