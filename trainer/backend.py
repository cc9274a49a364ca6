"""Define the interface of a backend: PyTorch (torch_backend/backend.py) or MXNet (mxnet_backend/gluon_backend.py).

A framework is what the user selects with --framework (see trainer.config.choices.OPTIONS); a backend is the class that
drives it. train.py, the data and the checkpoints use only numpy and this protocol.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.config.settings import TrainConfig
from trainer.data import Labels
from trainer.data.batches import LoadBatch
from trainer.data.dataset import Dataset
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World
from trainer.errors import TrainerError
from trainer.metrics.step_timer import StepTimer

Weights = Mapping[str, NDArray[np.generic]]
"""The network's weights and buffers by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingState:
    """Everything a backend needs to continue a run exactly."""

    weights: Weights
    optimizer: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    """The optimizer's state, such as momentum, by the backend's own names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFlags:
    """Requests of a rank, which all ranks carry out after the current step; one rank's flag is enough."""

    save: bool = False
    """Save a checkpoint."""
    stop: bool = False
    """Save a checkpoint and stop."""

    def __or__(self, other: "StepFlags") -> "StepFlags":
        return StepFlags(save=self.save or other.save, stop=self.stop or other.stop)


NO_FLAGS: Final = StepFlags()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """The loss and the flags of a step, over all ranks, and what this rank classified correctly."""

    loss_sum: float
    """Sum over the samples of all ranks, identical on every rank.

    With dist_async, where ranks do not wait for each other, an estimate from this rank's samples."""
    correct: int
    """Number of this rank's own samples that the network classified correctly."""
    flags: StepFlags = NO_FLAGS
    """Flags that any rank has set."""
    delay_steps: int = 0
    """0 for the latest step; 1 for a deferred result, of the step before."""

    def followed_by(self, later: "StepResult") -> "StepResult":
        """Return the result of the step after this one, with the correct predictions and the flags of both steps."""
        return replace(later, correct=self.correct + later.correct, flags=self.flags | later.flags)


NO_RESULT_YET: Final = StepResult(loss_sum=0.0, correct=0)


class Backend(Protocol):
    """A network on this rank's device, and its connection to the other ranks.

    Every rank must make the same calls in the same order, even if it has no samples.
    """

    timer: StepTimer
    """Times the phases of a step: the backend ends forward, backward and communication, the loop the others."""

    @property
    def peak_samples_per_s(self) -> float | None:
        """Peak speed of this rank's device by its datasheet; None if unknown."""

    def seed(self, number: int) -> None:
        """Seed this rank's random numbers, such as those of dropout; ``number`` has 31 bits."""

    def make_batch_loader(self, data: Dataset) -> LoadBatch:
        """Make a function that loads batches of this dataset for forward_backward and count_correct."""

    def forward_backward(self, images: Any, labels: Labels, *, flags: StepFlags = NO_FLAGS) -> StepResult:
        """Run forward and backward, and sum gradients, loss and flags over all ranks.

        With dist_async the ranks do not wait for each other, so optimizer_step sends the gradients.

        A backend that does not wait for its device returns the previous step's result, and NO_RESULT_YET in the first
        step, on all ranks alike. Such a backend, not its caller, skips the update when the loss is not finite.
        """

    def take_deferred(self) -> StepResult | None:
        """Return the deferred result that forward_backward has not returned yet, if any."""

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate from the next update on."""

    def optimizer_step(self, *, num_samples: int) -> None:
        """Update the weights with the mean gradient over the ``num_samples`` of this step, on all ranks together."""

    def count_correct(self, images: Any, labels: Labels) -> int:
        """Return the number of these images that the network classifies correctly."""

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each value over all ranks, as float64."""

    def broadcast_object(self, value: Any, *, source: int) -> Any:
        """Return the value of the rank ``source`` on every rank; JSON must be able to represent it."""

    def weights(self) -> Weights:
        """Return a copy of the weights."""

    def state(self) -> TrainingState:
        """Return a copy of the state that a checkpoint stores."""

    def snapshot(self) -> Callable[[], TrainingState]:
        """Return a function that copies the current state; call it in another thread, before the next update.

        The next update waits for the copy; the next forward and backward pass run beside it.
        """

    def restore(self, state: TrainingState | None, *, source: int) -> None:
        """Load the state of the rank ``source`` on all ranks; the other ranks pass None.

        If the source also passes None, all ranks get its initial weights.
        """

    def set_timeout(self, seconds: float) -> None:
        """Set the timeout for silent ranks, until the next step."""

    def close(self) -> None:
        """Disconnect after the last step. Do not call it after a failure: it may wait for the other ranks."""


class CreateBackend(Protocol):
    """Function that creates a backend with a new network."""

    def __call__(self, config: TrainConfig, *, world: World, dp: DataParallelGroup, learning_rate: float) -> Backend:
        """Build the network; connect the ranks if init_framework has not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InitializedFramework:
    """Result of initializing a framework: the place of this process, and the function that creates the backend."""

    world: World
    create_backend: CreateBackend


MODULES: Final = {
    "torch": "trainer.torch_backend.create_backend",
    "mxnet": "trainer.mxnet_backend.create_backend",
    "horovod": "trainer.mxnet_backend.horovod",
}
"""Module of each framework, with a function ``init(config, environment)``."""
PACKAGES: Final = {"torch": ("torch",), "mxnet": ("mxnet",), "horovod": ("mxnet", "horovod")}
"""Packages each framework needs, in the order in which they are checked."""
REMEDY: Final = {
    "torch": "use the image's /opt/pytorch/bin/python",
    "mxnet": "use `launch --framework mxnet` on a cluster deployed with frameworks=mxnet",
    "horovod": "use `launch --framework horovod` on a cluster deployed with frameworks=horovod",
}
"""Advice for a missing package."""


def set_library_defaults() -> None:
    """Set environment variables that the frameworks' libraries read when they are loaded."""
    # By default OpenMP's threads spin while they wait. Measured: LeNet ran at a tenth of its speed on cores shared with
    # another process.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Hide torch's warnings about host names without an IPv6 address.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def init_framework(config: TrainConfig, environment: Mapping[str, str]) -> InitializedFramework:
    """Import the framework's backend, and determine this process's rank, for which MXNet and Horovod connect the ranks.

    Raises TrainerError if the framework's packages are not installed.
    """
    for package in PACKAGES[config.framework]:
        if importlib.util.find_spec(package) is None:
            remedy = REMEDY[config.framework]
            raise TrainerError(f"{package} is not installed in this Python ({sys.executable}); {remedy}")
    framework: InitializedFramework = importlib.import_module(MODULES[config.framework]).init(config, environment)
    return framework
