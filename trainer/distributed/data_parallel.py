"""Determine which processes train one model together, and divide every batch among them."""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.config.settings import TrainConfig
from trainer.distributed.world import World
from trainer.errors import UsageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataParallelGroup:
    """Rank among the processes that train one model together, each with an equal part of every batch.

    It differs from World only with --kv-store device and local, where each process trains a model of its own.
    """

    rank: int = 0
    world_size: int = 1

    @property
    def is_first_of_group(self) -> bool:
        """True on the rank that reports for this model; with --kv-store device and local, on every process.

        What happens once per job, such as writing metrics, goes by World.rank.
        """
        return self.rank == 0

    def select(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this rank's part of the samples; parts differ by at most one sample and may be empty."""
        count = len(indices)
        return indices[count * self.rank // self.world_size : count * (self.rank + 1) // self.world_size]


def data_parallel_layout(config: TrainConfig, world: World) -> tuple[DataParallelGroup, int]:
    """Return this process's data-parallel group and the global batch size."""
    if not config.distributed:
        warn_if_independent(config, world)
        return DataParallelGroup(), config.samples_per_node_per_step
    if config.batch_size_per_node < world.local_world_size:
        raise UsageError(
            f"--batch-size must be at least {world.local_world_size}, one sample for each process "
            f"of a machine, got {config.batch_size_per_node}"
        )
    return DataParallelGroup(
        rank=world.rank, world_size=world.world_size
    ), config.samples_per_node_per_step * world.num_nodes


def warn_if_independent(config: TrainConfig, world: World) -> None:
    """Warn when processes of one job each train their own network."""
    if world.world_size > 1 and not config.distributed:
        log.warning(
            "--kv-store %s does not communicate, %d processes each train a model of their own; "
            "to train one model, use --kv-store dist_sync",
            config.effective_kv_store,
            world.world_size,
        )
