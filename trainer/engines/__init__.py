"""What the training loop asks of an engine: gradients summed over all ranks, and updates.

One file an engine. The loop and the data know only numpy and this protocol.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.data import Images, Labels

Weights = Mapping[str, NDArray[np.generic]]
"""The network's weights by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchResult:
    """What one step's forward and backward pass showed."""

    loss_sum: float
    """Over the samples of all ranks: every rank sees the same number and decides the same."""
    correct: int
    """Of this rank's own samples."""


class Engine(Protocol):
    """A network on this rank's device, and its connection to the other ranks.

    Every rank must make the same calls in the same order, also with no samples of its own.
    """

    def compute_gradients(self, images: Images, labels: Labels) -> BatchResult:
        """Sum the gradients of the loss over the samples of all ranks."""

    def update(self, *, samples: int) -> None:
        """Change the weights by the mean gradient over the ``samples`` of all ranks."""

    def count_correct(self, images: Images, labels: Labels) -> int:
        """Return how many of these images the network recognises."""

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks."""

    def weights(self) -> Weights:
        """Return a copy of the weights."""

    def close(self) -> None:
        """Leave the other ranks."""
