"""Test that the bundled digits match their source and are scaled."""

import numpy as np
import pytest

from trainer.data.digits import load_digits, scale
from trainer.errors import TrainerError

SHAPE = (1, 28, 28)


def test_digits_match_scikit_learn() -> None:
    data = load_digits(SHAPE)
    assert (len(data.train.labels), len(data.validation.labels), data.num_classes) == (1437, 360, 10)
    labels = np.concatenate([data.train.labels, data.validation.labels])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


@pytest.mark.parametrize("shape", [SHAPE, (3, 32, 32)])
def test_digits_are_scaled_to_the_networks_size(shape: tuple[int, int, int]) -> None:
    data = load_digits(shape)
    pixels = data.train.read(np.arange(1437))
    assert pixels.shape == (1437, *shape)
    assert pixels.dtype == np.uint8
    assert (pixels.min(), pixels.max()) == (0, 255)
    assert data.image_shape == shape


def test_oversized_digits_are_one_line() -> None:
    message = "^1437 training and 360 validation images of 1,1000000,1000000 take at least 1,673,586.7 GiB of memory, "
    with pytest.raises(TrainerError, match=message):
        load_digits((1, 10**6, 10**6))


def test_scaling_interpolates_between_pixel_centers() -> None:
    image = np.array([[[0, 1], [0, 1]]], np.float32)
    assert scale(image, height=1, width=4).tolist() == [[[0, 0.25, 0.75, 1]]]
