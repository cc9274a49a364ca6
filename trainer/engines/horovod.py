"""MXNet with Horovod: all-reduce between the ranks, over Gloo or MPI, one process a device."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import horovod.mxnet as hvd
import numpy as np
from mxnet import nd

from trainer.config import TrainConfig
from trainer.engines import Connection, Engine
from trainer.engines.gluon import GluonEngine, seed
from trainer.engines.patience import RANKS_S, meeting_s
from trainer.engines.watchdog import Watchdog
from trainer.models.gluon import build
from trainer.ranks import Ranks, describe_process, read_job, read_restarts
from trainer.sampling import Shard

log = logging.getLogger(__name__)

GLOO_TIMEOUT: Final = "HOROVOD_GLOO_TIMEOUT_SECONDS"
"""How long Gloo waits for the other ranks' addresses, and in its operations (Horovod's gloo_context.cc)."""


def connect(config: TrainConfig, environment: Mapping[str, str]) -> Connection:
    """Meet the other ranks, as launch, horovodrun or mpirun say."""
    patience_s = meeting_s(config)
    watchdog = Watchdog(meeting_s=patience_s)
    # By default 30 s, and then an error of Gloo's; ours is to be first.
    os.environ.setdefault(GLOO_TIMEOUT, f"{patience_s + RANKS_S:.0f}")
    with watchdog.waiting("meeting the other ranks"):
        hvd.init()
    ranks = Ranks(
        rank=hvd.rank(),
        world_size=hvd.size(),
        local_rank=hvd.local_rank(),
        local_world_size=hvd.local_size(),
        restarts=read_restarts(environment),
        job=read_job(environment),
    )
    return Connection(ranks=ranks, create=partial(create, watchdog))


def create(watchdog: Watchdog, config: TrainConfig, *, ranks: Ranks, shard: Shard, learning_rate: float) -> Engine:
    """Build the network."""
    log.info("%s device=cpu threads=%s", describe_process(os.environ), os.environ.get("OMP_NUM_THREADS", "all"))
    seed(config.seed)
    return GluonEngine(
        build(config.network, classes=config.classes, image_shape=config.input_shape),
        communication=AllReduce(watchdog),
        learning_rate=learning_rate,
        momentum=config.mom,
        weight_decay=config.wd,
    )


class AllReduce:
    """See trainer.engines.gluon.Communication. Each all-reduce goes by a name, the same on all ranks."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self.expect_steps = watchdog.expect_steps
        self.expect_pause = watchdog.expect_pause

    def add_up(self, gradients: Sequence[nd.NDArray]) -> None:
        """Begin to replace each gradient by its sum; Horovod puts small ones together."""
        for place, gradient in enumerate(gradients):
            hvd.allreduce_(gradient, op=hvd.Sum, name=f"gradient{place}", priority=-place)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up each value over all ranks, as float64; waits for all of them."""
        own = nd.array(np.array(values, np.float64), dtype="float64")
        with self._watchdog.waiting("adding up over all ranks"):
            sums = hvd.allreduce(own, op=hvd.Sum, name=f"values{len(values)}").asnumpy()
            # The gradients too: whatever needs them would wait for them unwatched.
            nd.waitall()
        return [float(value) for value in sums]

    def send(self, arrays: Sequence[nd.NDArray], *, source: int) -> None:
        """Replace the arrays by those of the rank ``source``."""
        with self._watchdog.waiting("sending weights to all ranks"):
            for place, array in enumerate(arrays):
                hvd.broadcast_(array, root_rank=source, name=f"weight{place}")
            nd.waitall()

    def leave(self) -> None:
        """Leave the other ranks."""
        hvd.shutdown()
