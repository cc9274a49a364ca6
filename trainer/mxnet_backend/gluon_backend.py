"""Compute a step with MXNet: a Gluon network on the CPU, its gradients and its optimizer.

With PyTorch, torch_backend/backend.py does the same. The backends on MXNet differ in how ranks communicate
(GluonCommunicator). They use neither gluon.Trainer nor Horovod's DistributedTrainer: both divide by one batch size in
all steps, although an epoch's last step is smaller, and refuse a step in which a rank has no samples. The sums and the
update use the same calls as those.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from numpy.typing import NDArray

from trainer.backend import NO_FLAGS, StepFlags, StepResult, TrainingState, Weights
from trainer.data import Images, Labels
from trainer.data.batches import LoadBatch, load_and_transform
from trainer.data.dataset import Dataset
from trainer.metrics.step_timer import StepTimer
from trainer.mxnet_backend.momentum_rate import RATE, agree_on_rate

MOMENTUM: Final = "mxnet_momentum"
"""Key of the momentum in a checkpoint. It differs from torch's key because MXNet's momentum has the opposite sign and
is multiplied by the learning rate."""
NAMES_IN_TORCH: Final = {"gamma": "weight", "beta": "bias"}
"""Torch's name of each of BatchNorm's weights, by MXNet's name."""


class GluonCommunicator(Protocol):
    """Communication between ranks. All of them make the same calls in the same order."""

    def reduce_gradients(self, gradients: Sequence[nd.NDArray]) -> None:
        """Start to replace each gradient by its sum over all ranks."""

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each value over all ranks, as float64."""

    def broadcast(self, arrays: Sequence[nd.NDArray], *, source: int) -> None:
        """Replace the arrays by those of the rank ``source``."""

    def use_step_timeout(self) -> None:
        """Use the step timeout from now on; call it once all ranks have made a step."""

    def set_timeout(self, seconds: float) -> None:
        """Let the other ranks be silent for this long from now on."""

    def leave(self) -> None:
        """Disconnect from the other ranks."""


class GluonBackend:
    """A network and its optimizer in MXNet. trainer.backend.Backend documents the public methods."""

    def __init__(
        self,
        network: gluon.HybridBlock,
        *,
        communicator: GluonCommunicator,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        decay_all: bool,
    ) -> None:
        self.timer = StepTimer()
        self.peak_samples_per_s = None
        self._network = network
        self._network.hybridize(static_alloc=True)
        self._loss_function = gluon.loss.SoftmaxCrossEntropyLoss()
        self._communicator = communicator
        self._settings = {"lr": learning_rate, "momentum": momentum}
        self._parameters = named_parameters(network)
        self._trained = [parameter for parameter in self._parameters.values() if parameter.grad_req != "null"]
        # Vectors do not decay: BatchNorm's factors and all biases.
        self._decays = [weight_decay if decay_all or len(parameter.shape) > 1 else 0.0 for parameter in self._trained]
        self._momenta = [nd.zeros_like(parameter.data()) for parameter in self._trained]
        self._statistics = [parameter for parameter in self._parameters.values() if parameter.grad_req == "null"]
        """Running means and variances of BatchNorm."""
        self._statistics_sums: list[nd.NDArray] = []

    def forward_backward(self, images: Images, labels: Labels, *, flags: StepFlags = NO_FLAGS) -> StepResult:
        logits, loss = self._backpropagate(images, labels)
        # Weight by samples, like the gradients: optimizer_step() turns both into means.
        self._statistics_sums = [statistic.data() * len(labels) for statistic in self._statistics]
        self._communicator.reduce_gradients([*self._gradients(), *self._statistics_sums])
        loss_sum, save, stop = self._communicator.all_reduce([float(loss.asscalar()), flags.save, flags.stop])
        self.timer.end("communication")
        self._communicator.use_step_timeout()
        return StepResult(
            loss_sum=loss_sum,
            correct=count_matches(logits, labels),
            flags=StepFlags(save=save > 0, stop=stop > 0),
        )

    def _backpropagate(self, images: Images, labels: Labels) -> tuple[nd.NDArray, nd.NDArray]:
        """Compute this rank's gradients; return the logits, if there are any, and the sum of the losses."""
        if not len(labels):
            for parameter in self._trained:
                parameter.zero_grad()
            return None, nd.zeros((1,))
        with autograd.record():
            logits = self._network(nd.array(images))
            loss = self._loss_function(logits, nd.array(labels)).sum()
        loss.backward()
        # MXNet computes in its own threads: forward is done when the loss is available, backward at a later wait.
        loss.wait_to_read()
        self.timer.end("forward")
        return logits, loss

    def set_learning_rate(self, rate: float) -> None:
        if rate == self._settings["lr"]:
            return
        # MXNet's momentum includes the rate; scaled to the new rate it equals torch's.
        for momentum in self._momenta:
            momentum *= rate / self._settings["lr"]
        self._settings["lr"] = rate

    def optimizer_step(self, *, num_samples: int) -> None:
        for parameter, momentum, wd in zip(self._trained, self._momenta, self._decays, strict=True):
            weight, gradient = parameter.data(), parameter.grad()
            nd.sgd_mom_update(
                weight, gradient, momentum, out=weight, rescale_grad=1 / num_samples, wd=wd, **self._settings
            )
        for statistic, statistic_sum in zip(self._statistics, self._statistics_sums, strict=True):
            statistic.data()[:] = statistic_sum / num_samples

    def take_deferred(self) -> None:
        """Return nothing: no result is outstanding."""

    def seed(self, number: int) -> None:
        mx.random.seed(number)

    def make_batch_loader(self, data: Dataset) -> LoadBatch:
        return partial(load_and_transform, data)

    def count_correct(self, images: Images, labels: Labels) -> int:
        return count_matches(self._network(nd.array(images)), labels) if len(labels) else 0

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        return self._communicator.all_reduce(values)

    def broadcast_object(self, value: Any, *, source: int) -> Any:
        content = json.dumps(value).encode()
        # MXNet's servers add only float32 numbers, so send each byte as a number. The array must be as long as on the
        # source.
        size = nd.array([len(content)])
        self._communicator.broadcast([size], source=source)
        length = int(size.asscalar())
        message = nd.array(list(content[:length].ljust(length)))
        self._communicator.broadcast([message], source=source)
        return json.loads(bytes(int(number) for number in message.asnumpy()))

    def weights(self) -> Weights:
        return {name: parameter.data().asnumpy() for name, parameter in self._parameters.items()}

    def state(self) -> TrainingState:
        rate = np.array(self._settings["lr"])
        return TrainingState(weights=self.weights(), optimizer={MOMENTUM: flatten(self._momenta), RATE: rate})

    def snapshot(self) -> Callable[[], TrainingState]:
        """Copy the current state now, because MXNet reads its arrays in the order of the calls."""
        state = self.state()
        return lambda: state

    def restore(self, state: TrainingState | None, *, source: int) -> None:
        if state is not None:
            for name, parameter in self._parameters.items():
                parameter.data()[:] = nd.array(state.weights[name])
            self._restore_momenta(state.optimizer)
        self._communicator.broadcast([*self._all_weights(), *self._momenta], source=source)
        # Momentum is meaningless without the rate that it includes, so the source sends its rate to all ranks.
        kept = None if state is None else state.optimizer
        self._settings["lr"] = agree_on_rate(self._settings["lr"], kept=kept, all_reduce=self._communicator.all_reduce)

    def set_timeout(self, seconds: float) -> None:
        self._communicator.set_timeout(seconds)

    def close(self) -> None:
        nd.waitall()
        self._communicator.leave()

    def _gradients(self) -> list[nd.NDArray]:
        return [parameter.grad() for parameter in self._trained]

    def _all_weights(self) -> list[nd.NDArray]:
        return [parameter.data() for parameter in self._parameters.values()]

    def _restore_momenta(self, optimizer: Mapping[str, NDArray[np.generic]]) -> None:
        # A checkpoint of dist_async has no momentum, which stayed on the servers.
        if MOMENTUM in optimizer:
            fill(self._momenta, optimizer[MOMENTUM])


def seed(number: int) -> None:
    """Seed MXNet's random numbers, from which new weights are drawn."""
    mx.random.seed(number)


def named_parameters(network: gluon.HybridBlock) -> dict[str, gluon.Parameter]:
    """Return the parameters by their names in torch, in torch's order."""
    # As in save_parameters(), a name is the path of attributes to the layer. A parameter's own name counts layers.
    parameters = network._collect_params_with_prefix()
    return {_name_in_torch(name): parameter for name, parameter in parameters.items()}


def _name_in_torch(name: str) -> str:
    place, _, last = name.rpartition(".")
    return f"{place}.{NAMES_IN_TORCH.get(last, last)}"


def flatten(arrays: Sequence[nd.NDArray]) -> NDArray[np.float32]:
    """Return all values of the arrays in one vector."""
    return np.concatenate([array.asnumpy().ravel() for array in arrays])


def fill(arrays: Sequence[nd.NDArray], vector: NDArray[np.generic]) -> None:
    """Copy the values of a vector from ``flatten`` back into the arrays."""
    ends = np.cumsum([array.size for array in arrays])
    for array, part in zip(arrays, np.split(vector, ends[:-1]), strict=True):
        array[:] = nd.array(part.reshape(array.shape))


def count_matches(logits: nd.NDArray, labels: Labels) -> int:
    """Return how many images have their highest score at their label."""
    return int((logits.argmax(axis=1).asnumpy() == labels).sum()) if len(labels) else 0
