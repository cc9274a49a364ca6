"""Test the synthetic images."""

import re

import numpy as np
import pytest

from trainer.data.synthetic import make_synthetic
from trainer.errors import TrainerError

SHAPE = (1, 28, 28)


def test_synthetic_images_are_reproducible() -> None:
    one, same, other = (make_synthetic(SHAPE, samples=50, seed=seed) for seed in (0, 0, 1))
    everything = np.arange(50)
    assert np.array_equal(one.train.read(everything), same.train.read(everything))
    assert np.array_equal(one.train.labels, same.train.labels)
    assert not np.array_equal(one.train.read(everything), other.train.read(everything))


@pytest.mark.parametrize(("asked", "memory", "samples"), [(None, 2**30, 2000), (None, 30 * 28 * 28, 30), (7, 2**30, 7)])
def test_synthetic_sample_count_is_the_requested_one_or_fits_in_memory(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, memory: int, samples: int
) -> None:
    monkeypatch.setattr("trainer.data.synthetic.MEMORY", memory)
    data = make_synthetic(SHAPE, num_classes=3, samples=asked)
    assert (len(data.train.labels), len(data.validation.labels)) == (samples, samples // 5)
    assert set(data.train.labels.tolist()) <= {0, 1, 2}
    assert data.num_classes == 3


@pytest.mark.parametrize(
    ("shape", "asked", "message"),
    [
        (SHAPE, 10**12, "1000000000000 training and 200000000000 validation images of 1,28,28 take at least 876,188."),
        # This exceeds the largest possible array.
        ((3, 10**10, 10**10), None, "1 training and 1 validation images of 3,10000000000,10000000000 take at least 5"),
    ],
)
def test_oversized_synthetic_data_is_one_line(shape: tuple[int, int, int], asked: int | None, message: str) -> None:
    with pytest.raises(TrainerError, match=rf"^{re.escape(message)}.* GiB of memory, this machine has [\d.,]+ GiB$"):
        make_synthetic(shape, samples=asked)
