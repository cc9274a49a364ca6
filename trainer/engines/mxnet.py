"""MXNet with its own key-value stores; those named dist_ are ps-lite's parameter servers.

One worker a machine. Its optimizer runs in the worker itself (``update_on_kvstore`` is off), so that
a checkpoint is whole: the servers only add up. With dist_async they do more, see mxnet_async.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import mxnet as mx
import numpy as np
from mxnet import nd
from numpy.typing import NDArray

from trainer.config import TrainConfig
from trainer.engines import Connection, Engine
from trainer.engines.exact import row_of, sum_rows
from trainer.engines.gluon import GluonEngine, fill, flat, seed
from trainer.engines.patience import meeting_s
from trainer.engines.watchdog import Watchdog
from trainer.errors import UsageError
from trainer.launched import ROLE
from trainer.models.gluon import build
from trainer.ranks import Ranks, describe_process, read_job, read_number, read_restarts
from trainer.sampling import Shard

log = logging.getLogger(__name__)

VECTORS: Final = 1_000_000
"""Keys from here on are of vectors, one a length; those below are of gradients, by their place."""
_joined: list[mx.kv.KVStore] = []
"""The store, until this rank leaves. MXNet leaves when a store is forgotten, and then waits for all
other ranks; one that fails would wait for those that wait for it, as soon as its variables are gone."""


def connect(config: TrainConfig, environment: Mapping[str, str]) -> Connection:
    """Join the store; with dist_ this waits until all workers and servers are there."""
    workers = environment.get("DMLC_NUM_WORKER", "1")
    if config.distributed and ROLE not in environment:
        raise UsageError(f"--kv-store {config.store} needs MXNet's servers, which `launch --engine mxnet` starts")
    if not config.distributed and workers != "1":
        raise UsageError(f"--kv-store {config.store} is for one worker, got {workers}: dist_sync is for all")
    watchdog = Watchdog(meeting_s=meeting_s(config))
    place = f"{environment.get('DMLC_PS_ROOT_URI')}:{environment.get('DMLC_PS_ROOT_PORT')}"
    if config.distributed:
        log.info("waiting for %s workers and %s servers at %s", workers, environment.get("DMLC_NUM_SERVER"), place)
    with watchdog.waiting(f"meeting {workers} workers at {place}"):
        store = mx.kv.create(config.store)
    _joined.append(store)
    # The launcher's number, where it gives one: ps-lite numbers the workers as they come.
    given = "DMLC_TASK_ID" in environment
    rank = read_number(environment, "DMLC_TASK_ID", minimum=0) if given else store.rank
    ranks = Ranks(
        rank=rank, world_size=store.num_workers, restarts=read_restarts(environment), job=read_job(environment)
    )
    return Connection(ranks=ranks, create=partial(create, watchdog))


def create(watchdog: Watchdog, config: TrainConfig, *, ranks: Ranks, shard: Shard, learning_rate: float) -> Engine:
    """Build the network."""
    [store] = _joined
    log.info("%s device=cpu threads=%s", describe_process(os.environ), os.environ.get("OMP_NUM_THREADS", "all"))
    seed(config.seed)
    network = build(config.network, classes=config.classes, image_shape=config.input_shape)
    if config.store == "dist_async":
        # Late: it builds on this module.
        from trainer.engines import mxnet_async

        return mxnet_async.create(
            network, config=config, store=store, ranks=ranks, watchdog=watchdog, learning_rate=learning_rate
        )
    return GluonEngine(
        network,
        communication=Store(store, ranks=ranks, watchdog=watchdog),
        learning_rate=learning_rate,
        momentum=config.mom,
        weight_decay=config.wd,
    )


class Store:
    """See trainer.engines.gluon.Communication."""

    def __init__(self, store: mx.kv.KVStore, *, ranks: Ranks, watchdog: Watchdog) -> None:
        self._store = store
        self._ranks = ranks
        self._watchdog = watchdog
        self._gradients_known = False
        self._vectors: dict[tuple[int, int], int] = {}
        """Keys that the servers have, by length and row; all ranks ask for them in the same order."""
        self.expect_steps = watchdog.expect_steps
        self.expect_pause = watchdog.expect_pause

    def add_up(self, gradients: Sequence[nd.NDArray]) -> None:
        """Begin to replace each gradient by its sum; the first layers' are wanted first."""
        if not self._gradients_known:
            with self._watchdog.waiting("meeting at the servers"):
                for key, gradient in enumerate(gradients):
                    self._store.init(key, nd.zeros_like(gradient))
            self._gradients_known = True
        for key, gradient in enumerate(gradients):
            self._store.pushpull(key, gradient, out=gradient, priority=-key)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks, exactly; waits for all of them."""
        row = row_of(values, rank=self._ranks.rank, ranks=self._ranks.world_size)
        return sum_rows(self._add("adding up over all ranks", row), ranks=self._ranks.world_size)

    def send(self, arrays: Sequence[nd.NDArray], *, source: int) -> None:
        """Replace the arrays by those of the rank ``source``: the others add zeros."""
        vector = flat(arrays)
        own = vector if self._ranks.rank == source else np.zeros_like(vector)
        fill(arrays, self._add("sending weights to all ranks", own))

    def leave(self) -> None:
        """Leave the other ranks; the last one lets the servers go."""
        with self._watchdog.waiting("leaving the other ranks"):
            del self._store
            _joined.clear()

    def _add(self, action: str, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        value = nd.array(vector)
        with self._watchdog.waiting(action):
            key = self._key(len(vector))
            self._store.pushpull(key, value, out=value)
            # The gradients too: whatever needs them would wait for them unwatched.
            nd.waitall()
            summed: NDArray[np.float32] = value.asnumpy()
            return summed

    def _key(self, length: int, *, row: int = 0) -> int:
        if (length, row) not in self._vectors:
            key = VECTORS + len(self._vectors)
            self._store.init(key, nd.zeros((length,)))
            self._vectors[length, row] = key
        return self._vectors[length, row]
