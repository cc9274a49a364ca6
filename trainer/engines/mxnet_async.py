"""MXNet's dist_async: no rank waits for another, and the optimizer runs on the servers.

Every rank's gradients change the weights on the servers as they come, by their part of the mean over a
global batch; it then takes the weights as they are, which others may have changed since it computed.
So there is no equality with one worker, nor from run to run. The ranks meet at each epoch's end, where
they count, take the same weights and keep checkpoints. These have no momentum: it is the servers'.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import mxnet as mx
import numpy as np
from mxnet import gluon, nd
from numpy.typing import NDArray

from trainer.config import TrainConfig
from trainer.data import Images, Labels
from trainer.engines import NOTHING, Asks, BatchResult, State
from trainer.engines.gluon import GluonEngine, count_matches
from trainer.engines.mxnet import VECTORS, Store
from trainer.engines.mxnet_server import ServerSGD
from trainer.engines.watchdog import Watchdog
from trainer.errors import StoppedError
from trainer.ranks import Ranks

log = logging.getLogger(__name__)


def create(
    network: gluon.HybridBlock,
    *,
    config: TrainConfig,
    store: mx.kv.KVStore,
    ranks: Ranks,
    watchdog: Watchdog,
    learning_rate: float,
) -> "AsyncEngine":
    """Give the servers their optimizer, and all ranks the weights of rank 0."""
    log.info("dist_async keeps a checkpoint at each epoch's end, and none when it is told to stop (SIGTERM)")
    # Not the weight decay: it follows the learning rate, of which the servers hear nothing after this.
    optimizer = ServerSGD(learning_rate=learning_rate, momentum=config.mom, wd=0, rows_from=VECTORS)
    communication = AsyncStore(store, optimizer, ranks=ranks, watchdog=watchdog)
    return AsyncEngine(
        network,
        communication=communication,
        ranks=ranks,
        learning_rate=learning_rate,
        momentum=config.mom,
        weight_decay=config.wd,
    )


class AsyncStore(Store):
    """Rows of the ranks instead of sums: servers with an optimizer do not add up."""

    def __init__(self, store: mx.kv.KVStore, optimizer: ServerSGD, *, ranks: Ranks, watchdog: Watchdog) -> None:
        super().__init__(store, ranks=ranks, watchdog=watchdog)
        self._met_at = time.monotonic()
        if store.rank == 0:
            store.set_optimizer(optimizer)
        self._barrier("meeting at the servers")

    def exchange(self, gradients: Sequence[nd.NDArray], weights: Sequence[nd.NDArray]) -> None:
        """Begin to change the servers' weights, and to take them over."""
        for key, (gradient, weight) in enumerate(zip(gradients, weights, strict=True)):
            self._store.push(key, gradient, priority=-key)
            self._store.pull(key, out=weight, priority=-key)

    def begin(self, weights: Sequence[nd.NDArray]) -> None:
        """Give the servers the first weights."""
        with self._watchdog.waiting("bringing the weights to the servers"):
            for key, weight in enumerate(weights):
                self._store.init(key, weight)

    def meet(self, weights: Sequence[nd.NDArray]) -> None:
        """Wait for all ranks' updates, and take the same weights on all of them."""
        self._barrier("meeting at an epoch's end")
        for key, weight in enumerate(weights):
            self._store.pull(key, out=weight)
        self._barrier("meeting at an epoch's end")

    def _add(self, action: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Put down this rank's row, and add up those of all."""
        rows = [nd.zeros((len(vector),)) for _ in range(self._ranks.world_size)]
        with self._waiting(action):
            keys = [self._key(len(vector), row=row) for row in range(len(rows))]
            self._store.push(keys[self._ranks.rank], nd.array(vector))
            self._barrier(action)
            for key, row in zip(keys, rows, strict=True):
                self._store.pull(key, out=row)
            self._barrier(action)
            summed: NDArray[np.float32] = nd.add_n(*rows).asnumpy()
        self._met_at = time.monotonic()
        return summed

    def _barrier(self, action: str) -> None:
        with self._waiting(action):
            nd.waitall()
            # Without a public name in MXNet 1.9; it waits for all workers.
            self._store._barrier()

    def _waiting(self, action: str) -> AbstractContextManager[None]:
        # Since they last met, a rank may have been half as fast as this one.
        return self._watchdog.waiting(action, more_s=time.monotonic() - self._met_at)


class AsyncEngine(GluonEngine):
    """See trainer.engines.Engine; asks of the ranks are heard at an epoch's end alone."""

    def __init__(
        self,
        network: gluon.HybridBlock,
        *,
        communication: AsyncStore,
        ranks: Ranks,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        super().__init__(
            network,
            communication=communication,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
        )
        self._servers = communication
        self._ranks = ranks.world_size
        self._begun = False
        self._rate = learning_rate
        self._rate_share = 1.0
        """Of the rate that the servers have: a new optimizer would begin without momentum."""

    def compute_gradients(self, images: Images, labels: Labels, *, asks: Asks = NOTHING) -> BatchResult:
        """Compute this rank's gradients."""
        if asks.stop:
            raise StoppedError("with the checkpoint of the last whole epoch: dist_async keeps no other")
        scores, loss = self._own_gradients(images, labels)
        return BatchResult(loss_sum=float(loss.asscalar()) * self._ranks, correct=count_matches(scores, labels))

    def set_learning_rate(self, rate: float) -> None:
        """Use it from the next update on."""
        self._rate_share = rate / self._rate

    def update(self, *, samples: int) -> None:
        """Have the servers change the weights by this rank's part of the mean gradient."""
        if not self._begun:
            # Not before a checkpoint can have been restored.
            self._servers.begin(self._trained_weights())
            self._begun = True
        gradients, weights = self._gradients(), self._trained_weights()
        for gradient, weight in zip(gradients, weights, strict=True):
            gradient *= self._rate_share / samples
            # Each rank's push is an update of its own: together they decay the weights once.
            gradient += self._rate_share * self._settings["wd"] / self._ranks * weight
        self._servers.exchange(gradients, weights)

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks, which then have the same weights."""
        sums = super().sum_over_ranks(values)
        if self._begun:
            self._servers.meet(self._trained_weights())
            if self._statistics:
                self._servers.send([each.data() for each in self._statistics], source=0)
            self._communication.expect_steps()
        return sums

    def state(self) -> State:
        """Return a copy of the weights; the servers keep their momentum to themselves."""
        return State(weights=self.weights())

    def _trained_weights(self) -> list[nd.NDArray]:
        return [parameter.data() for parameter in self._trained]
