"""Test which processes train one model together, and how they divide a batch."""

import logging

import numpy as np
import pytest

from trainer.config.settings import TrainConfig
from trainer.distributed.data_parallel import DataParallelGroup, data_parallel_layout
from trainer.distributed.world import World
from trainer.errors import UsageError

WORLD = World(rank=5, world_size=8, local_rank=1, local_world_size=4)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("total", [0, 1, 2, 64])
def test_shards_split_a_batch_evenly_and_completely(count: int, total: int) -> None:
    batch = np.arange(total)
    shares = [DataParallelGroup(rank=index, world_size=count).select(batch) for index in range(count)]
    assert np.array_equal(np.concatenate(shares), batch)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_dist_sync_shares_all_batches_among_all_processes() -> None:
    config = TrainConfig(kv_store="dist_sync", batch_size_per_node=64)
    dp, global_batch_size = data_parallel_layout(config, WORLD)
    assert dp == DataParallelGroup(rank=5, world_size=8)
    assert global_batch_size == 128


def test_local_kv_store_warns_about_independent_processes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        dp, global_batch_size = data_parallel_layout(TrainConfig(kv_store="local"), WORLD)
    assert (dp, global_batch_size) == (DataParallelGroup(rank=0, world_size=1), 64)
    assert "--kv-store local does not communicate, 8 processes each train a model of their own" in caplog.text


def test_too_small_batch_is_reported() -> None:
    config = TrainConfig(kv_store="dist_sync", batch_size_per_node=3)
    with pytest.raises(UsageError, match="--batch-size must be at least 4"):
        data_parallel_layout(config, WORLD)
