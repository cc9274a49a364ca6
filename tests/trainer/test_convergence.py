"""Test that two workers converge like one with their batches: a ResNet with BatchNorm on digits of CIFAR's shape."""

import re
from pathlib import Path

import pytest

from tests.trainer.programs.processes import Rank, run

EPOCHS = 3
OPTIONS = (
    *("--network", "tests.trainer.networks:resnet8", "--kv-store", "dist_sync", "--num-epochs", str(EPOCHS)),
    # Only small final steps let BatchNorm's running statistics catch up, by which held-out images are judged.
    *("--image-shape", "3,32,32", "--random-crop", "1", "--lr-step-epochs", str(EPOCHS - 1)),
)
GLOBAL_BATCH_SIZE = 64
CURVE = re.compile(r"Epoch\[\d+\] Train-accuracy=([\d.]+) Validation-accuracy=([\d.]+) loss=([\d.]+)")
# Each worker normalizes by its own samples, so the curves are not bit-identical. With twice the global batch, the first
# epoch's loss differs by 0.39.
LOSS_TOLERANCE = 0.15
ACCURACY_TOLERANCE = 0.06


def curve(rank: Rank) -> list[tuple[float, float, float]]:
    """Return accuracy on training and held-out images, and loss, after each epoch."""
    found = CURVE.findall(rank.log.read_text())
    return [(float(train), float(validation), float(loss)) for train, validation, loss in found]


@pytest.mark.soak
def test_two_workers_learn_along_the_curve_of_one(tmp_path: Path) -> None:
    one, two = (
        curve(run(*OPTIONS, "--batch-size", str(GLOBAL_BATCH_SIZE // count), directory=tmp_path, count=count)[0])
        for count in (1, 2)
    )
    assert len(one) == len(two) == EPOCHS
    assert one[0][0] < 0.5
    assert one[-1][0] > 0.85
    assert one[-1][1] > 0.85
    assert [epoch[2] for epoch in two] == pytest.approx([epoch[2] for epoch in one], abs=LOSS_TOLERANCE)
    assert [epoch[0] for epoch in two] == pytest.approx([epoch[0] for epoch in one], abs=ACCURACY_TOLERANCE)
    assert two[-1][1] == pytest.approx(one[-1][1], abs=ACCURACY_TOLERANCE)
