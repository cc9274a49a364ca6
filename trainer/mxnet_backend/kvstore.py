"""Sum and broadcast over MXNet's key-value store.

The optimizer runs in each worker (``update_on_kvstore`` is off), so that a checkpoint is complete: the servers only
add. With dist_async they also run the optimizer, see dist_async.
"""

from collections.abc import Sequence
from typing import Final

import mxnet as mx
import numpy as np
from mxnet import nd
from numpy.typing import NDArray

from trainer.distributed.world import World
from trainer.mxnet_backend.float64_split import split_row, sum_rows
from trainer.mxnet_backend.gluon_backend import fill, flatten
from trainer.mxnet_backend.watchdog import Watchdog

VECTORS: Final = 1_000_000
"""First key of vectors, one per length; lower keys belong to gradients, by their order."""
joined_stores: list[mx.kv.KVStore] = []
"""The store, until this rank leaves. MXNet leaves when a store is garbage-collected, and then waits for all other
ranks; a failing rank would, as soon as its variables are gone, wait for ranks that wait for it."""


class KVStoreCommunicator:
    """See trainer.mxnet_backend.gluon_backend.GluonCommunicator."""

    def __init__(self, store: mx.kv.KVStore, *, world: World, watchdog: Watchdog) -> None:
        self._store = store
        self._world = world
        self._watchdog = watchdog
        self._has_gradient_keys = False
        self._keys: dict[tuple[int, int], int] = {}
        """Keys of vectors on the servers, by length and row; all ranks request them in the same order."""
        self.use_step_timeout = watchdog.use_step_timeout
        self.set_timeout = watchdog.set_timeout

    def reduce_gradients(self, gradients: Sequence[nd.NDArray]) -> None:
        """Start to replace each gradient by its sum; the first layers' sums are needed first."""
        if not self._has_gradient_keys:
            with self._watchdog.waiting("rendezvous at the servers"):
                for key, gradient in enumerate(gradients):
                    self._store.init(key, nd.zeros_like(gradient))
            self._has_gradient_keys = True
        for key, gradient in enumerate(gradients):
            self._store.pushpull(key, gradient, out=gradient, priority=-key)

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """Return the exact sum of each value over all ranks; wait for all of them."""
        row = split_row(values, rank=self._world.rank, ranks=self._world.world_size)
        return sum_rows(self._sum("the all-reduce", row), ranks=self._world.world_size)

    def broadcast(self, arrays: Sequence[nd.NDArray], *, source: int) -> None:
        """Replace the arrays by those of the rank ``source``: the other ranks add zeros."""
        vector = flatten(arrays)
        summand = vector if self._world.rank == source else np.zeros_like(vector)
        fill(arrays, self._sum("sending weights to all ranks", summand))

    def leave(self) -> None:
        """Disconnect from the other ranks; the last one releases the servers."""
        with self._watchdog.waiting("leaving the other ranks"):
            del self._store
            joined_stores.clear()

    def _sum(self, action: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        value = nd.array(vector)
        with self._watchdog.waiting(action):
            key = self._key(len(vector))
            self._store.pushpull(key, value, out=value)
            # Wait for the gradients too, while the watchdog watches.
            nd.waitall()
            summed: NDArray[np.float32] = value.asnumpy()
            return summed

    def _key(self, length: int, *, row: int = 0) -> int:
        if (length, row) not in self._keys:
            key = VECTORS + len(self._keys)
            self._store.init(key, nd.zeros((length,)))
            self._keys[length, row] = key
        return self._keys[length, row]
