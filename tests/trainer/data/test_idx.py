"""Test reading idx files, also damaged ones."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trainer.data.digits import load_digits
from trainer.data.idx import read_idx
from trainer.errors import TrainerError

CONTENT = struct.pack(">HBB2I", 0, 8, 2, 2, 3) + bytes(range(6))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "values.gz"


@pytest.mark.parametrize("content", [CONTENT, gzip.compress(CONTENT)], ids=["plain", "gzipped"])
def test_idx_values_keep_their_shape(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert np.array_equal(read_idx(path, dimensions=2), [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda: b"<html>" + CONTENT, "is not an idx file of bytes in 2 dimensions, starts with 3c68746d"),
        (lambda: gzip.compress(CONTENT)[:-12], "is truncated"),
        (lambda: gzip.compress(CONTENT)[:12] + b"\xff\xff" + gzip.compress(CONTENT)[14:], "is damaged"),
        (lambda: gzip.compress(CONTENT)[:-8] + bytes(8), "is damaged, crc check failed"),
        (lambda: gzip.compress(CONTENT[:5]), "is truncated, 5 bytes are less than its header"),
        (lambda: gzip.compress(CONTENT[:-1]), "is damaged, has 5 values, its header says 6"),
        (lambda: gzip.compress(b"\0\0\x0d\2" + CONTENT[4:]), "is not an idx file of bytes in 2 dimensions"),
    ],
)
def test_damaged_idx_file_is_reported(path: Path, damage: Callable[[], bytes], message: str) -> None:
    path.write_bytes(damage())
    with pytest.raises(TrainerError) as caught:
        read_idx(path, dimensions=2)
    assert str(caught.value).startswith(f"{path} {message}")
    assert "\n" not in str(caught.value)


def test_missing_idx_file_is_reported(path: Path) -> None:
    with pytest.raises(TrainerError, match=f"cannot read {path}: No such file or directory"):
        read_idx(path, dimensions=2)


def test_unequal_image_and_label_counts_are_reported(tmp_path: Path) -> None:
    images = struct.pack(">HBB3I", 0, 8, 3, 2, 8, 8) + bytes(128)
    labels = struct.pack(">HBBI", 0, 8, 1, 3) + bytes(3)
    (tmp_path / "digits-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (tmp_path / "digits-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    with pytest.raises(TrainerError, match="holds 2 images, but 3 labels"):
        load_digits((1, 28, 28), directory=tmp_path)
