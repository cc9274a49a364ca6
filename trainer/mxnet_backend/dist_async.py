"""Train with MXNet's dist_async: no rank waits for another, and the optimizer runs on the servers.

The servers update the weights with each rank's gradients as they arrive, divided by the global batch size. The rank
then loads the current weights, which other ranks may have changed in the meantime, so two runs differ. The ranks
synchronize at each epoch's end, where they sum counts, load the same weights and save checkpoints. These contain no
momentum, which is on the servers.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import mxnet as mx
import numpy as np
from mxnet import gluon, nd
from numpy.typing import NDArray

from trainer.backend import NO_FLAGS, StepFlags, StepResult, TrainingState
from trainer.config.settings import TrainConfig
from trainer.data import Images, Labels
from trainer.distributed.world import World
from trainer.errors import StoppedError
from trainer.mxnet_backend.gluon_backend import GluonBackend, count_matches
from trainer.mxnet_backend.kvstore import VECTORS, KVStoreCommunicator
from trainer.mxnet_backend.parameter_server import ServerSGD
from trainer.mxnet_backend.watchdog import Watchdog

log = logging.getLogger(__name__)


def create(
    network: gluon.HybridBlock,
    *,
    config: TrainConfig,
    store: mx.kv.KVStore,
    world: World,
    watchdog: Watchdog,
    learning_rate: float,
) -> "AsyncBackend":
    """Send the servers their optimizer, and create this rank's backend."""
    log.info("dist_async keeps a checkpoint at each epoch's end, and none when it is told to stop (SIGTERM)")
    # Without weight decay, because it follows the learning rate, whose changes do not reach the servers.
    optimizer = ServerSGD(learning_rate=learning_rate, momentum=config.momentum, wd=0, rows_from=VECTORS)
    return AsyncBackend(
        network,
        communicator=AsyncCommunicator(store, optimizer, world=world, watchdog=watchdog),
        world=world,
        learning_rate=learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        decay_all=config.wd_all,
    )


class AsyncCommunicator(KVStoreCommunicator):
    """Sums by collecting a row from every rank: servers with an optimizer do not add."""

    def __init__(self, store: mx.kv.KVStore, optimizer: ServerSGD, *, world: World, watchdog: Watchdog) -> None:
        super().__init__(store, world=world, watchdog=watchdog)
        self._last_barrier_at = time.monotonic()
        if store.rank == 0:
            store.set_optimizer(optimizer)
        self._barrier("rendezvous at the servers")

    def exchange(self, gradients: Sequence[nd.NDArray], weights: Sequence[nd.NDArray]) -> None:
        """Start updating the servers' weights with the gradients, and loading them."""
        for key, (gradient, weight) in enumerate(zip(gradients, weights, strict=True)):
            self._store.push(key, gradient, priority=-key)
            self._store.pull(key, out=weight, priority=-key)

    def send_first_weights(self, weights: Sequence[nd.NDArray]) -> None:
        """Send the servers the initial weights of the training."""
        with self._watchdog.waiting("bringing the weights to the servers"):
            for key, weight in enumerate(weights):
                self._store.init(key, weight)

    def synchronize(self, weights: Sequence[nd.NDArray]) -> None:
        """Wait for all ranks' updates, and load the same weights on all ranks."""
        self._barrier("barrier at an epoch's end")
        for key, weight in enumerate(weights):
            self._store.pull(key, out=weight)
        self._barrier("barrier at an epoch's end")

    def _sum(self, action: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Send this rank's row, and add up the rows of all ranks."""
        rows = [nd.zeros((len(vector),)) for _ in range(self._world.world_size)]
        with self._waiting(action):
            keys = [self._key(len(vector), row=row) for row in range(len(rows))]
            self._store.push(keys[self._world.rank], nd.array(vector))
            self._barrier(action)
            for key, row in zip(keys, rows, strict=True):
                self._store.pull(key, out=row)
            self._barrier(action)
            summed: NDArray[np.float32] = nd.add_n(*rows).asnumpy()
        self._last_barrier_at = time.monotonic()
        return summed

    def _barrier(self, action: str) -> None:
        with self._waiting(action):
            nd.waitall()
            # Waits for all workers; it has no public name in MXNet 1.9, whose last release this is.
            self._store._barrier()

    def _waiting(self, action: str) -> AbstractContextManager[None]:
        # Another rank may have been half as fast as this rank since the last barrier.
        return self._watchdog.waiting(action, more_s=time.monotonic() - self._last_barrier_at)


class AsyncBackend(GluonBackend):
    """See trainer.backend.Backend; the ranks receive each other's flags only at an epoch's end."""

    def __init__(
        self,
        network: gluon.HybridBlock,
        *,
        communicator: AsyncCommunicator,
        world: World,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        decay_all: bool,
    ) -> None:
        super().__init__(
            network,
            communicator=communicator,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            decay_all=decay_all,
        )
        self._servers = communicator
        self._world_size = world.world_size
        self._has_begun = False
        self._server_rate = learning_rate
        self._lr_ratio = 1.0
        """Current rate divided by the servers' rate; giving them a new optimizer would lose the momentum."""

    def forward_backward(self, images: Images, labels: Labels, *, flags: StepFlags = NO_FLAGS) -> StepResult:
        """Compute this rank's gradients."""
        if flags.stop:
            raise StoppedError("with the checkpoint of the last whole epoch: dist_async keeps no other")
        logits, loss = self._backpropagate(images, labels)
        loss_sum = float(loss.asscalar()) * self._world_size
        return StepResult(loss_sum=loss_sum, correct=count_matches(logits, labels))

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate from the next update on."""
        self._lr_ratio = rate / self._server_rate

    def optimizer_step(self, *, num_samples: int) -> None:
        """Let the servers change the weights by this rank's share of the mean gradient."""
        if not self._has_begun:
            # Wait until now: before the first update, a checkpoint may be restored.
            self._servers.send_first_weights(self._trained_weights())
            self._has_begun = True
        gradients, weights = self._gradients(), self._trained_weights()
        for gradient, weight, wd in zip(gradients, weights, self._decays, strict=True):
            gradient *= self._lr_ratio / num_samples
            # Each rank's push is a separate update; together, they decay the weights once.
            gradient += self._lr_ratio * wd / self._world_size * weight
        self._servers.exchange(gradients, weights)

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each value over all ranks, which then have the same weights."""
        sums = super().all_reduce(values)
        if self._has_begun:
            self._servers.synchronize(self._trained_weights())
            if self._statistics:
                self._servers.broadcast([statistic.data() for statistic in self._statistics], source=0)
            self._communicator.use_step_timeout()
        return sums

    def state(self) -> TrainingState:
        """Return a copy of the weights; the momentum is on the servers."""
        return TrainingState(weights=self.weights())

    def _trained_weights(self) -> list[nd.NDArray]:
        return [parameter.data() for parameter in self._trained]
