"""Connect MXNet's ranks with Horovod: all-reduce over Gloo or MPI, one process per device."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import horovod.mxnet as hvd
import numpy as np
from mxnet import nd

from trainer.backend import Backend, InitializedFramework
from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.world import World, describe_process, read_job_id, read_restart_count
from trainer.mxnet_backend.gluon_backend import GluonBackend, seed
from trainer.mxnet_backend.models import build
from trainer.mxnet_backend.watchdog import Watchdog
from trainer.timeouts import STEP_TIMEOUT_S, rendezvous_timeout_s

log = logging.getLogger(__name__)

GLOO_TIMEOUT: Final = "HOROVOD_GLOO_TIMEOUT_SECONDS"
"""Variable with Gloo's timeout, in seconds, for connecting and for operations (Horovod's gloo_context.cc)."""


def init(config: TrainConfig, environment: Mapping[str, str]) -> InitializedFramework:
    """Connect to the other ranks that launch, horovodrun or mpirun started."""
    timeout_s = rendezvous_timeout_s(config)
    watchdog = Watchdog(rendezvous_timeout_s=timeout_s)
    # By default, Gloo fails after 30 s with its own message; the watchdog's should come first.
    os.environ.setdefault(GLOO_TIMEOUT, f"{timeout_s + STEP_TIMEOUT_S:.0f}")
    with watchdog.waiting("rendezvous with the other ranks"):
        hvd.init()
    world = World(
        rank=hvd.rank(),
        world_size=hvd.size(),
        local_rank=hvd.local_rank(),
        local_world_size=hvd.local_size(),
        restart_count=read_restart_count(environment),
        job_id=read_job_id(environment),
    )
    return InitializedFramework(world=world, create_backend=partial(create_backend, watchdog))


def create_backend(
    watchdog: Watchdog, config: TrainConfig, *, world: World, dp: DataParallelGroup, learning_rate: float
) -> Backend:
    """Build the network."""
    log.info("%s device=cpu threads=%s", describe_process(os.environ), os.environ.get("OMP_NUM_THREADS", "all"))
    seed(config.seed)
    return GluonBackend(
        build(config.network, num_classes=config.resolved_num_classes, image_shape=config.input_shape),
        communicator=HorovodCommunicator(watchdog),
        learning_rate=learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        decay_all=config.wd_all,
    )


class HorovodCommunicator:
    """See trainer.mxnet_backend.gluon_backend.GluonCommunicator. Each operation has a name, the same on all ranks."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self.use_step_timeout = watchdog.use_step_timeout
        self.set_timeout = watchdog.set_timeout

    def reduce_gradients(self, gradients: Sequence[nd.NDArray]) -> None:
        """Start to replace each gradient by its sum; Horovod joins small gradients."""
        for place, gradient in enumerate(gradients):
            hvd.allreduce_(gradient, op=hvd.Sum, name=f"gradient{place}", priority=-place)

    def all_reduce(self, values: Sequence[float]) -> list[float]:
        """Return the sum of each value over all ranks, as float64; wait for all of them."""
        array = nd.array(np.array(values, np.float64), dtype="float64")
        with self._watchdog.waiting("the all-reduce"):
            sums = hvd.allreduce(array, op=hvd.Sum, name=f"values{len(values)}").asnumpy()
            # Wait for the gradients too, while the watchdog watches.
            nd.waitall()
        return [float(value) for value in sums]

    def broadcast(self, arrays: Sequence[nd.NDArray], *, source: int) -> None:
        """Replace the arrays by those of the rank ``source``."""
        with self._watchdog.waiting("sending weights to all ranks"):
            for place, array in enumerate(arrays):
                # Include the size in the name, because Horovod caches a tensor's shape by its name.
                hvd.broadcast_(array, root_rank=source, name=f"weight{place}-{array.size}")
            nd.waitall()

    def leave(self) -> None:
        """Disconnect from the other ranks."""
        hvd.shutdown()
