"""Test the learning rate over a run."""

import pytest

from trainer.config.schedule import LRSchedule

WARMUP_TO_64_GPUS = LRSchedule(start=0.1, peak=6.4, warmup_epochs=5, step_epochs=(30, 60))


@pytest.mark.parametrize(
    ("epoch", "epoch_fraction", "rate"),
    [
        (0, 0, 0.1),
        (2, 0.5, 3.25),
        (4, 1, 6.4),
        (5, 0, 6.4),
        (29, 1, 6.4),
        (30, 0, 0.64),
        (60, 0.5, 0.064),
    ],
)
def test_rate_warms_up_and_steps_down(epoch: int, epoch_fraction: float, rate: float) -> None:
    assert WARMUP_TO_64_GPUS.lr(epoch=epoch, epoch_fraction=epoch_fraction) == pytest.approx(rate)


def test_step_multiplies_the_rate_by_the_factor() -> None:
    schedule = LRSchedule(start=1, peak=1, factor=0.5, step_epochs=(1, 2))
    assert [schedule.lr(epoch=epoch, epoch_fraction=0) for epoch in range(4)] == [1, 0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("epoch", "epoch_fraction", "rate"),
    [(0, 0.5, 0.25), (1, 0.5, 0.75), (2, 0, 1), (4, 0, 0.75), (5, 0, 0.5), (6, 0, 0.25), (7, 1, 0), (8, 1, 0)],
)
def test_rate_falls_as_half_a_cosine_after_the_warm_up(epoch: int, epoch_fraction: float, rate: float) -> None:
    schedule = LRSchedule(start=0, peak=1, warmup_epochs=2, cosine_epochs=8)
    assert schedule.lr(epoch=epoch, epoch_fraction=epoch_fraction) == pytest.approx(rate)
