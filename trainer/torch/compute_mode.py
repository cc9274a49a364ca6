"""Describe how PyTorch computes a step: choices for speed that change the result only by rounding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from trainer.config.choices import COMPILE_LEVELS
from trainer.config.settings import TrainConfig
from trainer.models import NETWORKS

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeMode:
    """One way to compute a step."""

    dtype: str = "float32"
    """Of convolutions and matrix products, by autocast; weights, sums and statistics stay float32."""
    channels_last: bool = False
    """Whether the channels of a pixel are adjacent in memory, as tensor cores prefer."""
    compiled: str = COMPILE_LEVELS[0]
    """How much torch.compile does: one of COMPILE_LEVELS."""

    def __str__(self) -> str:
        compiled = {"0": (), "1": ("compiled",), "graphs": ("compiled", "graphs")}[self.compiled]
        return " ".join((self.dtype, *("channels_last",) * self.channels_last, *compiled))

    @property
    def is_compiled(self) -> bool:
        """Whether torch.compile has any part in it."""
        return self.compiled != COMPILE_LEVELS[0]

    def compile(self, model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return a function that runs the network in this mode.

        CUDA graphs are recorded again for each new batch size; a result is valid until the graph runs again.
        """
        if not self.is_compiled:
            return model
        return torch.compile(model, dynamic=False, mode="reduce-overhead" if self.compiled == "graphs" else None)


EXACT: Final = ComputeMode()


def given_mode(config: TrainConfig, model: nn.Module) -> ComputeMode:
    """Return the mode that the settings name; what they leave open becomes what is always safe.

    A user's network may call ``view`` on its layers' results, which channels_last does not allow ("Channels Last Memory
    Format in PyTorch", the tutorial); our networks do not. With it a step of LeNet takes 0.7 of the time on one core, a
    step of ResNet-110 0.9.
    """
    return ComputeMode(
        dtype=config.dtype or EXACT.dtype,
        channels_last=config.network in NETWORKS and has_convolutions(model),
        compiled=config.compile if config.compile in COMPILE_LEVELS else COMPILE_LEVELS[0],
    )


def has_convolutions(model: nn.Module) -> bool:
    """Return whether channels_last applies to a network: it has two-dimensional convolutions."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())
