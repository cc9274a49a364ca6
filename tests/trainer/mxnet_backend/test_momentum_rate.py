"""Test that a resumed run keeps the learning rate that its momentum was computed with."""

import itertools

import numpy as np
import pytest

from trainer.config.schedule import LRSchedule
from trainer.mxnet_backend.float64_split import split_row, sum_rows
from trainer.mxnet_backend.momentum_rate import RATE, agree_on_rate

STEPS = 50
SCHEDULE = LRSchedule(start=0.05, peak=0.3, warmup_epochs=1)
RATES = [SCHEDULE.lr(epoch=0, epoch_fraction=(step + 1) / STEPS) for step in range(STEPS)]


def agreed(owns: list[float], kept: dict[int, float]) -> list[float]:
    """Return each rank's value after they agreed through servers that sum in float32; ``kept`` is by rank."""
    found = []
    for own, rank in zip(owns, range(len(owns)), strict=True):

        def add_up(values: object, rank: int = rank) -> list[float]:
            output = [[0.0, 0.0] if row not in kept else [1.0, kept[row]] for row in range(len(owns))]
            assert values == output[rank]
            return sum_rows(
                np.sum([split_row(each, rank=place, ranks=len(owns)) for place, each in enumerate(output)], axis=0),
                ranks=len(owns),
            )

        optimizer = {RATE: np.array(kept[rank])} if rank in kept else None
        found.append(agree_on_rate(own, kept=optimizer, all_reduce=add_up))
    return found


@pytest.mark.parametrize("source", [0, 2])
def test_all_ranks_get_the_checkpoints_rate_to_the_last_bit(source: int) -> None:
    for rate in RATES:
        assert agreed([0.05] * 3, {source: rate}) == [rate] * 3


def test_without_a_checkpoint_each_rank_uses_its_own_rate() -> None:
    assert agreed([0.05, 0.05], {}) == [0.05, 0.05]
    # A checkpoint of dist_async: weights, but nothing of the optimizer.
    assert agree_on_rate(0.05, kept={}, all_reduce=list) == 0.05


def grown(rates: list[float], momentum: np.float32) -> np.float32:
    """Return the momentum after these rates, of which it includes the first, as MXNet multiplies it."""
    for before, rate in itertools.pairwise(rates):
        momentum = momentum * np.float32(rate / before)
    return momentum


def test_resumed_warm_up_has_the_momentum_of_an_uninterrupted_one() -> None:
    undisturbed = grown(RATES, np.float32(0.7))
    others = []
    for place in range(1, STEPS - 1):
        half = grown(RATES[: place + 1], np.float32(0.7))
        [rate] = agreed([0.05], {0: RATES[place]})
        assert grown([rate, *RATES[place + 1 :]], half) == undisturbed
        others.append(grown([float(np.float32(rate)), *RATES[place + 1 :]], half))
    # The rate in the precision of MXNet's arrays would not suffice.
    assert any(other != undisturbed for other in others)
