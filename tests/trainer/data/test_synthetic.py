import numpy as np
import pytest

from trainer.data.synthetic import make_synthetic

SHAPE = (1, 28, 28)


def test_made_up_images_are_the_same_everywhere() -> None:
    one, same, other = (make_synthetic(SHAPE, samples=50, seed=seed) for seed in (0, 0, 1))
    everything = np.arange(50)
    assert np.array_equal(one.train.read(everything), same.train.read(everything))
    assert np.array_equal(one.train.labels, same.train.labels)
    assert not np.array_equal(one.train.read(everything), other.train.read(everything))


@pytest.mark.parametrize(("asked", "memory", "samples"), [(None, 2**30, 2000), (None, 30 * 28 * 28, 30), (7, 2**30, 7)])
def test_there_are_as_many_as_asked_or_as_fit(
    monkeypatch: pytest.MonkeyPatch, asked: int | None, memory: int, samples: int
) -> None:
    monkeypatch.setattr("trainer.data.synthetic.MEMORY", memory)
    data = make_synthetic(SHAPE, classes=3, samples=asked)
    assert (len(data.train.labels), len(data.held_out.labels)) == (samples, samples // 5)
    assert set(data.train.labels.tolist()) <= {0, 1, 2}
    assert data.classes == 3
