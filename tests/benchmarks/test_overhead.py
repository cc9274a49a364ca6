"""Test which figures are published."""

from collections.abc import Sequence

import pytest

from benchmarks.harness.pair import Contestant
from benchmarks.harness.work import WORK
from benchmarks.train import overhead


def test_epoch_speeds_are_reported_beside_window_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(contestants: Sequence[Contestant], *, rounds: int) -> None:
        """Ours, the bare script three times, MXNet: the best round within epochs need not be the best over them."""
        for contestant, speed in zip(contestants, (120.0, 90.0, 100.0, 80.0, 60.0), strict=True):
            contestant.speeds, contestant.epoch_speeds = [speed, speed / 2], [speed / 4, speed / 3]
        contestants[0].epoch_speeds = [30.0]

    peer = Contestant(name="MXNet", command=[], work=WORK["lenet"])
    monkeypatch.setattr(overhead, "mxnet", lambda network: peer)
    monkeypatch.setattr(overhead, "compare", compare)
    assert overhead.measure(2, ["lenet"]) == [
        "overhead_lenet 1.200 ratio",
        "overhead_lenet_epochs 0.900 ratio",
        "vs_mxnet_lenet 2.000 ratio",
        "vs_mxnet_lenet_epochs 1.500 ratio",
    ]
