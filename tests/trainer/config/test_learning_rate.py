"""Test the learning rate that the options and the global batch size select."""

import pytest

from trainer.config.command_line import parse
from trainer.config.settings import TrainConfig


@pytest.mark.parametrize(("global_batch_size", "rate"), [(32, 0.025), (64, 0.05), (128, 0.1), (1024, 0.1)])
def test_default_learning_rate_scales_up_to_a_limit(global_batch_size: int, rate: float) -> None:
    assert TrainConfig().schedule(global_batch_size=global_batch_size).peak == pytest.approx(rate)


def test_warm_up_removes_the_limit_of_the_default_learning_rate() -> None:
    assert TrainConfig(warmup_epochs=2).schedule(global_batch_size=1024).peak == pytest.approx(0.8)


@pytest.mark.parametrize(("global_batch_size", "rate"), [(64, 0.05), (128, 0.025), (256, 0.0125)])
def test_dist_async_divides_the_default_learning_rate_by_the_machines(global_batch_size: int, rate: float) -> None:
    config = TrainConfig(framework="mxnet", kv_store="dist_async", batch_size_per_node=64)
    assert config.schedule(global_batch_size=global_batch_size).peak == pytest.approx(rate)


def test_explicit_learning_rate_is_not_scaled() -> None:
    assert TrainConfig(lr=0.3).schedule(global_batch_size=4096).peak == 0.3


def test_learning_rate_scales_with_lr_batch_size() -> None:
    config = parse(["--lr", "0.1", "--lr-batch-size", "256", "--warmup-epochs", "5", "--lr-step-epochs", "30,60,80"])
    one, all_64 = config.schedule(global_batch_size=256), config.schedule(global_batch_size=64 * 256)
    assert (one.start, one.peak) == (0.1, 0.1)
    assert all_64.start == 0.1
    assert all_64.peak == pytest.approx(6.4)
    assert all_64.lr(epoch=59, epoch_fraction=0.5) == pytest.approx(0.64)


def test_lr_factor_reduces_the_learning_rate() -> None:
    config = parse(["--lr", "0.4", "--lr-factor", "0.5", "--lr-step-epochs", "2,3"])
    schedule = config.schedule(global_batch_size=64)
    assert [schedule.lr(epoch=epoch, epoch_fraction=0) for epoch in range(4)] == [0.4, 0.4, 0.2, 0.1]
