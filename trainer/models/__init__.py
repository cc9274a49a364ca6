"""The networks that ``--network`` knows: one module each, named as the network."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from torch import nn

IMAGE_SHAPES: Final[Mapping[str, tuple[int, int, int]]] = {
    "lenet": (1, 28, 28),
}
"""Every network, with the channels, height and width of the images it takes."""


def build(network: str, *, classes: int) -> "nn.Module":
    """Build a network with new weights from torch's random numbers."""
    # Imported late: a wrong option is reported without loading torch.
    module = importlib.import_module(f"trainer.models.{network}")
    model: nn.Module = module.build(classes=classes)
    return model
