"""Connect to MXNet's key-value store, and create the backend for --framework mxnet.

Stores named dist_ are ps-lite's parameter servers, with one worker per machine.
"""

import logging
import os
from collections.abc import Mapping
from functools import partial

import mxnet as mx

from trainer.backend import Backend, InitializedFramework
from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup
from trainer.distributed.launcher_check import ROLE
from trainer.distributed.world import World, describe_process, read_job_id, read_number, read_restart_count
from trainer.errors import UsageError
from trainer.mxnet_backend import dist_async
from trainer.mxnet_backend.gluon_backend import GluonBackend, seed
from trainer.mxnet_backend.kvstore import KVStoreCommunicator, joined_stores
from trainer.mxnet_backend.models import build
from trainer.mxnet_backend.watchdog import Watchdog
from trainer.timeouts import rendezvous_timeout_s

log = logging.getLogger(__name__)


def init(config: TrainConfig, environment: Mapping[str, str]) -> InitializedFramework:
    """Join the key-value store; if its name begins with dist_, wait until all workers and servers have joined."""
    workers = environment.get("DMLC_NUM_WORKER", "1")
    if config.distributed and ROLE not in environment:
        raise UsageError(
            f"--kv-store {config.effective_kv_store} needs MXNet's servers, which `launch --framework mxnet` starts"
        )
    if not config.distributed and workers != "1":
        raise UsageError(
            f"--kv-store {config.effective_kv_store} is for one worker, got {workers}: use dist_sync for several"
        )
    watchdog = Watchdog(rendezvous_timeout_s=rendezvous_timeout_s(config))
    server_address = f"{environment.get('DMLC_PS_ROOT_URI')}:{environment.get('DMLC_PS_ROOT_PORT')}"
    if config.distributed:
        log.info(
            "waiting for %s workers and %s servers at %s", workers, environment.get("DMLC_NUM_SERVER"), server_address
        )
    with watchdog.waiting(f"rendezvous of {workers} workers at {server_address}"):
        store = mx.kv.create(config.effective_kv_store)
    joined_stores.append(store)
    # Prefer the launcher's number: ps-lite numbers the workers as they arrive.
    is_given = "DMLC_TASK_ID" in environment
    rank = read_number(environment, "DMLC_TASK_ID", minimum=0) if is_given else store.rank
    world = World(
        rank=rank,
        world_size=store.num_workers,
        restart_count=read_restart_count(environment),
        job_id=read_job_id(environment),
    )
    return InitializedFramework(world=world, create_backend=partial(create_backend, watchdog))


def create_backend(
    watchdog: Watchdog, config: TrainConfig, *, world: World, dp: DataParallelGroup, learning_rate: float
) -> Backend:
    """Build the network."""
    [store] = joined_stores
    log.info("%s device=cpu threads=%s", describe_process(os.environ), os.environ.get("OMP_NUM_THREADS", "all"))
    seed(config.seed)
    network = build(config.network, num_classes=config.resolved_num_classes, image_shape=config.input_shape)
    if config.effective_kv_store == "dist_async":
        return dist_async.create(
            network, config=config, store=store, world=world, watchdog=watchdog, learning_rate=learning_rate
        )
    return GluonBackend(
        network,
        communicator=KVStoreCommunicator(store, world=world, watchdog=watchdog),
        learning_rate=learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        decay_all=config.wd_all,
    )
