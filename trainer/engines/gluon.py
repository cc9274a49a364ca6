"""What the engines on MXNet share: a Gluon network on the CPU, its gradients and its optimizer.

They differ in how ranks communicate. Not gluon.Trainer nor Horovod's DistributedTrainer: both divide
by one batch size for all steps, where an epoch's last step is smaller, and refuse a step in which a
rank has no samples. The sums are the same calls that they make, the update is the one that they run.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from numpy.typing import NDArray

from trainer.data import Images, Labels
from trainer.data.batches import prepare
from trainer.data.samples import DataSet
from trainer.engines import NOTHING, Asks, BatchResult, Reader, State, Weights
from trainer.engines.rates import RATE, agree_on_rate
from trainer.phases import COMMUNICATION, Phases

MOMENTUM: Final = "mxnet_momentum"
"""Not torch's: MXNet's momentum holds the learning rate, and has the other sign."""
NAMES_IN_TORCH: Final = {"gamma": "weight", "beta": "bias"}
"""Of a BatchNorm's weights."""


class Communication(Protocol):
    """What ranks send each other. All of them make the same calls in the same order."""

    def add_up(self, gradients: Sequence[nd.NDArray]) -> None:
        """Begin to replace each gradient by its sum over all ranks."""

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks, as float64."""

    def send(self, arrays: Sequence[nd.NDArray], *, source: int) -> None:
        """Replace the arrays by those of the rank ``source``."""

    def expect_steps(self) -> None:
        """All ranks have made a step: from now on none has a reason to be slow."""

    def expect_pause(self, seconds: float) -> None:
        """Let the other ranks be silent for so long from now on."""

    def leave(self) -> None:
        """Leave the other ranks."""


class GluonEngine:
    """See trainer.engines.Engine."""

    def __init__(
        self,
        network: gluon.HybridBlock,
        *,
        communication: Communication,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        self.phases = Phases()
        self.peak_speed = None
        self._network = network
        self._network.hybridize(static_alloc=True)
        self._loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        self._communication = communication
        self._settings = {"lr": learning_rate, "momentum": momentum, "wd": weight_decay}
        self._parameters = named_parameters(network)
        self._trained = [each for each in self._parameters.values() if each.grad_req != "null"]
        self._momenta = [nd.zeros_like(each.data()) for each in self._trained]
        self._statistics = [each for each in self._parameters.values() if each.grad_req == "null"]
        """A BatchNorm's running means and variances."""
        self._statistics_sums: list[nd.NDArray] = []

    def reader(self, data: DataSet) -> Reader:
        """Return what reads samples of this data set."""
        return partial(prepare, data)

    def compute_gradients(self, images: Images, labels: Labels, *, asks: Asks = NOTHING) -> BatchResult:
        """Sum the gradients of the loss over the samples of all ranks, and what the ranks ask for."""
        scores, loss = self._own_gradients(images, labels)
        # By samples, as the gradients: update() makes means of both.
        self._statistics_sums = [each.data() * len(labels) for each in self._statistics]
        self._communication.add_up([*self._gradients(), *self._statistics_sums])
        own = [float(loss.asscalar()), asks.save, asks.stop]
        loss_sum, save, stop = self._communication.sum(own)
        self.phases.end(COMMUNICATION)
        self._communication.expect_steps()
        return BatchResult(
            loss_sum=loss_sum, correct=count_matches(scores, labels), asks=Asks(save=save > 0, stop=stop > 0)
        )

    def settle(self) -> None:
        """Nothing is outstanding."""

    def seed(self, number: int) -> None:
        """Begin this rank's random numbers anew."""
        mx.random.seed(number)

    def set_learning_rate(self, rate: float) -> None:
        """Use it from the next update on."""
        # MXNet's momentum holds the rate; with the new one it is what torch's would be.
        for momentum in self._momenta:
            momentum *= rate / self._settings["lr"]
        self._settings["lr"] = rate

    def update(self, *, samples: int) -> None:
        """Change the weights by the mean gradient over the ``samples`` of all ranks."""
        for parameter, momentum in zip(self._trained, self._momenta, strict=True):
            weight, gradient = parameter.data(), parameter.grad()
            nd.sgd_mom_update(weight, gradient, momentum, out=weight, rescale_grad=1 / samples, **self._settings)
        for statistic, statistic_sum in zip(self._statistics, self._statistics_sums, strict=True):
            statistic.data()[:] = statistic_sum / samples

    def count_correct(self, images: Images, labels: Labels) -> int:
        """Return how many of these images the network recognises."""
        return count_matches(self._network(nd.array(images)), labels) if len(labels) else 0

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks."""
        return self._communication.sum(values)

    def weights(self) -> Weights:
        """Return a copy of the weights."""
        return {name: parameter.data().asnumpy() for name, parameter in self._parameters.items()}

    def state(self) -> State:
        """Return a copy of all that a checkpoint needs."""
        rate = np.array(self._settings["lr"])
        return State(weights=self.weights(), optimizer={MOMENTUM: flat(self._momenta), RATE: rate})

    def snapshot(self) -> Callable[[], State]:
        """Copy at once: MXNet's arrays are read in the order in which they are asked for."""
        state = self.state()
        return lambda: state

    def restore(self, state: State | None, *, source: int) -> None:
        """Take over the state that the rank ``source`` has, or its new weights; on the others it is None."""
        if state is not None:
            for name, parameter in self._parameters.items():
                parameter.data()[:] = nd.array(state.weights[name])
            self._restore_momenta(state.optimizer)
        self._communication.send([*self._all_weights(), *self._momenta], source=source)
        # Momentum is worth nothing without the rate that it holds; who has it says it to all.
        kept = None if state is None else state.optimizer
        self._settings["lr"] = agree_on_rate(self._settings["lr"], kept=kept, add_up=self._communication.sum)

    def expect_pause(self, seconds: float) -> None:
        """Let the other ranks be silent for so long from now on."""
        self._communication.expect_pause(seconds)

    def close(self) -> None:
        """Leave the other ranks."""
        nd.waitall()
        self._communication.leave()

    def _own_gradients(self, images: Images, labels: Labels) -> tuple[nd.NDArray, nd.NDArray]:
        """Compute this rank's gradients; return the scores, if there are any, and the sum of the losses."""
        if not len(labels):
            for parameter in self._trained:
                parameter.zero_grad()
            return None, nd.zeros((1,))
        with autograd.record():
            scores = self._network(nd.array(images))
            loss = self._loss_of(scores, nd.array(labels)).sum()
        loss.backward()
        # MXNet computes beside us: with the loss forward has ended, and backward will somewhere in what follows.
        loss.wait_to_read()
        self.phases.end("forward")
        return scores, loss

    def _gradients(self) -> list[nd.NDArray]:
        return [parameter.grad() for parameter in self._trained]

    def _all_weights(self) -> list[nd.NDArray]:
        return [parameter.data() for parameter in self._parameters.values()]

    def _restore_momenta(self, optimizer: Mapping[str, NDArray[np.generic]]) -> None:
        # dist_async keeps none: there they are the servers'.
        if MOMENTUM in optimizer:
            fill(self._momenta, optimizer[MOMENTUM])


def seed(number: int) -> None:
    """Begin MXNet's random numbers, from which new weights come."""
    mx.random.seed(number)


def named_parameters(network: gluon.HybridBlock) -> dict[str, gluon.Parameter]:
    """Return the parameters by the names that torch gives them, in its order."""
    # What save_parameters() uses: names by place, not by when a layer was made.
    found = network._collect_params_with_prefix()
    return {_name_in_torch(name): parameter for name, parameter in found.items()}


def _name_in_torch(name: str) -> str:
    place, _, last = name.rpartition(".")
    return f"{place}.{NAMES_IN_TORCH.get(last, last)}"


def flat(arrays: Sequence[nd.NDArray]) -> NDArray[np.float32]:
    """Return all values of the arrays in one vector."""
    return np.concatenate([array.asnumpy().ravel() for array in arrays])


def fill(arrays: Sequence[nd.NDArray], vector: NDArray[np.generic]) -> None:
    """Put the values of a vector back into the arrays that it was made of."""
    ends = np.cumsum([array.size for array in arrays])
    for array, part in zip(arrays, np.split(vector, ends[:-1]), strict=True):
        array[:] = nd.array(part.reshape(array.shape))


def count_matches(scores: nd.NDArray, labels: Labels) -> int:
    """Return how many images have their highest score at their label."""
    return int((scores.argmax(axis=1).asnumpy() == labels).sum()) if len(labels) else 0
