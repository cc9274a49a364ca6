"""What the training loop asks of an engine: gradients summed over all ranks, and updates.

One file an engine. The loop and the data know only numpy and this protocol.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.config import TrainConfig
from trainer.data import Labels
from trainer.data.batches import Draws
from trainer.data.samples import DataSet, Samples
from trainer.errors import TrainerError
from trainer.phases import Phases
from trainer.ranks import Ranks
from trainer.sampling import Indices, Shard

Weights = Mapping[str, NDArray[np.generic]]
"""The network's weights by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What an engine needs to go on as if nothing had happened."""

    weights: Weights
    optimizer: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    """Its memory of earlier steps, by the engine's own names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asks:
    """What ranks want after a step; one that wants it is enough."""

    save: bool = False
    """Keep a checkpoint."""
    stop: bool = False
    """Keep a checkpoint and end."""

    def __or__(self, other: "Asks") -> "Asks":
        return Asks(save=self.save or other.save, stop=self.stop or other.stop)


NOTHING: Final = Asks()


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchResult:
    """What one step's forward and backward pass showed."""

    loss_sum: float
    """Over the samples of all ranks: every rank sees the same number and decides the same.

    With dist_async, where ranks do not wait for each other, an estimate from its own."""
    correct: int
    """Of this rank's own samples."""
    asks: Asks = NOTHING
    """Of all ranks."""
    steps_ago: int = 0
    """0: of the step that was asked for last; 1: of the one before, as it is late."""


NOTHING_YET: Final = BatchResult(loss_sum=0.0, correct=0)


class Reader(Protocol):
    """Makes batches ready for an engine, in the thread that is one ahead of the training."""

    def __call__(self, samples: Samples, indices: Indices, draws: Draws | None = None) -> tuple[Any, Labels]:
        """Return these samples as the engine takes them, and their labels."""


class Engine(Protocol):
    """A network on this rank's device, and its connection to the other ranks.

    Every rank must make the same calls in the same order, also with no samples of its own.
    """

    phases: Phases
    """Told when forward, backward and communication end; the loop tells it the rest."""

    @property
    def peak_speed(self) -> float | None:
        """Samples a second that this rank's device could do by its datasheet; None where that is not known."""

    def seed(self, number: int) -> None:
        """Begin this rank's random numbers anew, those of a network with dropout, say; ``number`` has 31 bits."""

    def reader(self, data: DataSet) -> Reader:
        """Return what reads samples of this data set for compute_gradients and count_correct."""

    def compute_gradients(self, images: Any, labels: Labels, *, asks: Asks = NOTHING) -> BatchResult:
        """Sum the gradients of the loss over the samples of all ranks, and what the ranks ask for.

        An engine that must not wait for its device returns the result of the step before, on all ranks alike, and
        NOTHING_YET at first. A loss that is not finite changes no weights there either.
        """

    def settle(self) -> BatchResult | None:
        """Return the result that compute_gradients has not returned yet, if there is one."""

    def set_learning_rate(self, rate: float) -> None:
        """Use it from the next update on."""

    def update(self, *, samples: int) -> None:
        """Change the weights by the mean gradient over the ``samples`` of all ranks."""

    def count_correct(self, images: Any, labels: Labels) -> int:
        """Return how many of these images the network recognises."""

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks."""

    def weights(self) -> Weights:
        """Return a copy of the weights."""

    def state(self) -> State:
        """Return a copy of all that a checkpoint needs."""

    def snapshot(self) -> Callable[[], State]:
        """Return what copies the state of this moment; to be called soon, in another thread.

        The next update waits until it has, and nothing else does.
        """

    def restore(self, state: State | None, *, source: int) -> None:
        """Take over the state that the rank ``source`` has; on the others it is None.

        Where it is None there too, its new weights are taken: an engine sends none by itself.
        """

    def expect_pause(self, seconds: float) -> None:
        """Let the other ranks be silent for so long from now on."""

    def close(self) -> None:
        """Leave the other ranks, all of which have done their work. Not after a failure: it may wait for them."""


class Create(Protocol):
    """Makes an engine with a new network."""

    def __call__(self, config: TrainConfig, *, ranks: Ranks, shard: Shard, learning_rate: float) -> Engine:
        """Build the network and join the other ranks, unless connect() has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """What is known before there is a network."""

    ranks: Ranks
    create: Create


Connect = Callable[[TrainConfig, Mapping[str, str]], Connection]
"""Each engine's ``connect``: finds out which rank this is; waits for the others where only they can tell."""

PACKAGES: Final = {"torch": ("torch",), "mxnet": ("mxnet",), "horovod": ("mxnet", "horovod")}
"""What each engine takes, and in which order it is looked for."""
ORIGIN: Final = {
    "torch": "the image's is /opt/pytorch/bin/python",
    "mxnet": "`launch --engine mxnet` takes one that has, in a cluster with the setting engines",
    "horovod": "`launch --engine horovod` takes one that has, in a cluster with the setting engines=horovod",
}


def load(engine: str) -> Connect:
    """Import an engine; TrainerError where this Python does not have it."""
    for package in PACKAGES[engine]:
        if importlib.util.find_spec(package) is None:
            raise TrainerError(f"this Python ({sys.executable}) has no {package}, {ORIGIN[engine]}")
    connect: Connect = importlib.import_module(f"trainer.engines.{engine}").connect
    return connect
