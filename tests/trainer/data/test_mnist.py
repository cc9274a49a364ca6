"""Test reading MNIST's files, also damaged or missing ones."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from trainer.data.mnist import load_mnist
from trainer.errors import TrainerError

COUNTS = {"train": 5, "t10k": 2}


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create gzipped images and plain labels, like MNIST's but fewer."""
    for part, count in COUNTS.items():
        images = np.arange(count)[:, None, None] + np.zeros((28, 28))
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(count) + 3))
    return tmp_path


def test_training_and_validation_files_are_read(directory: Path) -> None:
    data = load_mnist(directory, name="mnist")
    assert (data.image_shape, data.num_classes) == ((1, 28, 28), 10)
    assert data.train.read(np.array([4, 1]))[:, 0, 0, 0].tolist() == [4, 1]
    assert data.train.labels.tolist() == [3, 4, 5, 6, 7]
    assert data.validation.labels.tolist() == [3, 4]
    assert data.mean == (2.0,)
    assert data.std == pytest.approx((2**0.5,))


@pytest.mark.parametrize(("name", "page"), [("mnist", "yann.lecun.com"), ("fashion-mnist", "zalandoresearch")])
def test_missing_file_is_reported_with_its_source(directory: Path, name: str, page: str) -> None:
    (directory / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(TrainerError, match=f"no t10k-labels-idx1-ubyte or .*gz in {directory}: get .* {name} .*{page}"):
        load_mnist(directory, name=name)


def test_inaccessible_directory_is_reported(tmp_path: Path) -> None:
    # Not Permission denied, which root never gets: stat() fails, so a file may exist or not.
    directory = tmp_path / ("x" * 300)
    with pytest.raises(TrainerError, match=f"^cannot read {directory}/train-images-idx3-ubyte: File name too long$"):
        load_mnist(directory, name="mnist")


def test_truncated_file_is_named(directory: Path) -> None:
    path = directory / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TrainerError, match=f"{path} is truncated"):
        load_mnist(directory, name="mnist")


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("train-labels-idx1-ubyte", np.zeros(4), "holds 5 images, but 4 labels"),
        ("train-labels-idx1-ubyte", np.full(5, 10), "has the label 10, more than 10 classes can have"),
        (
            "train-images-idx3-ubyte",
            np.zeros((5, 8, 8)),
            "train-images-idx3-ubyte has images of 8x8, mnist's are 28x28",
        ),
    ],
)
def test_other_dataset_is_reported(directory: Path, file: str, values: np.ndarray, message: str) -> None:
    (directory / file).write_bytes(idx(values))
    with pytest.raises(TrainerError, match=message):
        load_mnist(directory, name="mnist")
