import numpy as np
import pytest

from trainer.data import enlarge, load_digits, make_synthetic

SHAPE = (1, 28, 28)


def test_the_digits_are_scikit_learns() -> None:
    data = load_digits(SHAPE)
    assert (len(data.train), len(data.held_out)) == (1437, 360)
    labels = np.concatenate([data.train.labels, data.held_out.labels])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_digits_are_enlarged_to_what_the_network_takes() -> None:
    images = load_digits(SHAPE).train.images
    assert images.shape == (1437, *SHAPE)
    assert images.dtype == np.float32
    assert images.min() == 0
    assert images.max() == pytest.approx(1)


def test_enlarging_interpolates_between_pixel_centres() -> None:
    image = np.array([[[0, 1], [0, 1]]], np.float32)
    assert enlarge(image, height=1, width=4).tolist() == [[[0, 0.25, 0.75, 1]]]


def test_made_up_images_are_the_same_everywhere() -> None:
    one, other = make_synthetic(SHAPE), make_synthetic(SHAPE)
    assert np.array_equal(one.train.images, other.train.images)
    assert np.array_equal(one.train.labels, other.train.labels)
    assert not np.array_equal(one.train.images, make_synthetic(SHAPE, seed=1).train.images)
    assert set(one.held_out.labels.tolist()) == set(range(10))
