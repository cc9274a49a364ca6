"""How PyTorch computes a step: what is chosen for speed, and changes the result by rounding alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from trainer.choices import COMPILED
from trainer.config import TrainConfig
from trainer.models import NETWORKS

DTYPES: Final[Mapping[str, torch.dtype]] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """One way to compute a step."""

    dtype: str = "float32"
    """Of convolutions and products of matrices, by autocast; weights, sums and statistics stay float32."""
    channels_last: bool = False
    """Whether the values of a pixel lie side by side, as tensor cores want them."""
    compiled: str = COMPILED[0]
    """One of COMPILED, how far by torch.compile."""

    def __str__(self) -> str:
        compiled = {"0": (), "1": ("compiled",), "graphs": ("compiled", "graphs")}[self.compiled]
        return " ".join((self.dtype, *("channels_last",) * self.channels_last, *compiled))

    def compile(self, model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return what runs the network so.

        CUDA graphs are recorded when a batch has a new size; what they return holds until they run again.
        """
        if self.compiled == COMPILED[0]:
            return model
        return torch.compile(model, dynamic=False, mode="reduce-overhead" if self.compiled == "graphs" else None)


EXACT: Final = Method()


def given_method(config: TrainConfig, model: nn.Module) -> Method:
    """Return the method that the settings name, and for what they leave open what never does harm.

    A user's network may call ``view`` on its layers' results, which channels_last refuses ("Channels Last Memory Format
    in PyTorch", the tutorial); ours do not. On one core LeNet's step takes 0.7 of the time so, ResNet-110's 0.9.
    """
    return Method(
        dtype=config.dtype or EXACT.dtype,
        channels_last=config.network in NETWORKS and has_convolutions(model),
        compiled=config.compile if config.compile in COMPILED else COMPILED[0],
    )


def has_convolutions(model: nn.Module) -> bool:
    """Whether a network's images may have their channels last: it has convolutions of two dimensions."""
    return any(isinstance(module, nn.Conv2d) for module in model.modules())
