"""Test speed, accuracy and digest of the log lines."""

import numpy as np
import pytest

from trainer.metrics.results import EpochResult, Speedometer, digest


def test_speedometer_reports_every_n_batches() -> None:
    times = iter([0.0, 2.0, 2.0, 3.0, 3.0])
    speedometer = Speedometer(every=2, clock=lambda: next(times))
    assert speedometer.add(samples=10, correct=5) is None
    assert str(speedometer.add(samples=10, correct=10)) == "Speed: 10.00 samples/sec accuracy=0.7500"
    assert speedometer.add(samples=10, correct=0) is None
    assert str(speedometer.add(samples=0, correct=0)) == "Speed: 10.00 samples/sec accuracy=0.0000"


def test_speed_is_over_all_ranks() -> None:
    result = EpochResult(samples=100, loss=0.5, train_accuracy=1, validation_accuracy=1, seconds=0.5)
    assert result.speed == pytest.approx(200)


def test_utilization_is_shown_only_if_known() -> None:
    known = EpochResult(samples=100, loss=0.5, train_accuracy=1, validation_accuracy=1, seconds=0.5, mfu=0.4567)
    assert str(known).endswith(" model FLOP utilization=45.7%")
    assert known.metrics["speed/mfu"] == 0.4567
    unknown = EpochResult(samples=100, loss=0.5, train_accuracy=1, validation_accuracy=1, seconds=0.5)
    assert "utilization" not in f"{unknown} {unknown.metrics}"


def test_digest_changes_with_one_bit() -> None:
    weights = {"a": np.zeros(4, np.float32)}
    changed = {"a": np.array([0, 0, 0, -0.0], np.float32)}
    assert digest(weights) == digest({"a": np.zeros(4, np.float32)})
    assert digest(weights) != digest(changed)
