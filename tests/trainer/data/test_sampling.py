"""Test the order of an epoch's samples, and the seeds of its steps."""

import numpy as np
import pytest

from trainer.data.sampling import epoch_length, global_batches, step_seed
from trainer.distributed.data_parallel import DataParallelGroup


def test_each_epoch_holds_every_sample_once_in_a_new_order() -> None:
    epochs = [np.concatenate(list(global_batches(100, global_batch_size=32, seed=7, epoch=e))) for e in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(100))
    assert not np.array_equal(epochs[0], epochs[1])


def test_seed_determines_the_order() -> None:
    first, same, other = (next(global_batches(100, global_batch_size=100, seed=s, epoch=0)) for s in (1, 1, 2))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def test_last_batch_holds_the_remaining_samples() -> None:
    assert [len(batch) for batch in global_batches(100, global_batch_size=32, seed=0, epoch=0)] == [32, 32, 32, 4]


@pytest.mark.parametrize(
    ("begin", "batch", "drop_last", "end"),
    [(0, 32, True, 96), (0, 32, False, 100), (0, 128, True, 100), (0, 50, True, 100), (64, 48, True, 64)],
)
def test_epoch_ends_at_its_last_full_batch_or_last_sample(begin: int, batch: int, drop_last: bool, end: int) -> None:
    assert epoch_length(100, global_batch_size=batch, begin=begin, drop_last=drop_last) == end


def test_step_seed_differs_for_each_step_and_rank() -> None:
    places = [
        (seed, epoch, position, rank) for seed in (0, 1) for epoch in (0, 1) for position in (0, 64) for rank in (0, 1)
    ]
    seeds = [
        step_seed(seed, epoch=epoch, position=position, dp=DataParallelGroup(rank=rank, world_size=2))
        for seed, epoch, position, rank in places
    ]
    assert len(set(seeds)) == len(places)
    assert all(0 <= seed < 2**31 for seed in seeds)
