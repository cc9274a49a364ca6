"""Test image folders: their classes, their images, and the messages about damaged ones."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from trainer.data.batches import Augmentation, load_and_transform
from trainer.data.images.decoding import decode_threads
from trainer.data.images.folder import load_folder
from trainer.errors import TrainerError

COLORS = {"blue": (0, 0, 255), "red": (255, 0, 0)}
SHAPE = (3, 28, 28)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create two classes, with images of several sizes, kinds and modes."""
    for part in ("train", "val"):
        for name, color in COLORS.items():
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (80, 60), color).save(tmp_path / part / name / "a.jpg", quality=95)
            Image.new("RGB", (20, 90), color).convert("P").save(tmp_path / part / name / "b.PNG")
    return tmp_path


def test_classes_are_the_sorted_directories(directory: Path) -> None:
    (directory / "train" / "red" / "notes.txt").write_text("no image")
    data = load_folder(directory, SHAPE)
    assert (data.num_classes, data.image_shape) == (2, SHAPE)
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert data.validation.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("crop", [False, True])
def test_images_are_scaled_to_the_networks_size(directory: Path, crop: bool) -> None:
    data = load_folder(directory, SHAPE)
    params = Augmentation(random_crop=crop).draw(epoch=0, samples=4)
    images, labels = load_and_transform(data, data.train, np.array([3, 0, 2]), params)
    assert images.shape == (3, *SHAPE)
    assert labels.tolist() == [1, 0, 1]
    mean, std = np.array(data.mean), np.array(data.std)
    for image, name in zip(images, ("red", "blue", "red"), strict=True):
        assert np.allclose(image.mean(axis=(1, 2)) * std + mean, COLORS[name], atol=6)


def test_empty_batch_is_read(directory: Path) -> None:
    data = load_folder(directory, (1, 28, 28))
    images, _ = load_and_transform(data, data.train, np.array([], np.int64))
    assert images.shape == (0, 1, 28, 28)


@pytest.mark.parametrize("damage", [b"", b"no image", None])
def test_damaged_image_is_named(directory: Path, damage: bytes | None) -> None:
    path = directory / "train" / "blue" / "a.jpg"
    path.write_bytes(path.read_bytes()[:500] if damage is None else damage)
    data = load_folder(directory, SHAPE)
    with pytest.raises(TrainerError, match=f"cannot read the image {path}: ") as caught:
        data.train.read(np.array([0, 1]))
    assert "\n" not in str(caught.value)


def test_missing_part_is_reported_with_the_expected_layout(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=f"cannot read {tmp_path}/train: No such .* DIRECTORY/train/CLASS/"):
        load_folder(tmp_path, SHAPE)


@pytest.mark.parametrize("part", ["train", "val"])
def test_class_without_images_is_named(directory: Path, part: str) -> None:
    for path in (directory / part / "red").iterdir():
        path.rename(path.with_suffix(".tiff"))
    with pytest.raises(
        TrainerError, match=f"{directory}/{part}/red has no images: no file name ends in one of .bmp, .jpeg"
    ):
        load_folder(directory, SHAPE)


@pytest.mark.parametrize("part", ["train", "val"])
def test_unreadable_class_is_named(directory: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Act like a user other than root, whom permissions would not stop.
    scandir, refused = os.scandir, directory / part / "blue"

    def scan(path: str | Path) -> Any:
        if Path(path) == refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr("os.scandir", scan)
    with pytest.raises(TrainerError, match=f"^cannot read {refused}: Permission denied$"):
        load_folder(directory, SHAPE)


def test_class_may_be_missing_from_the_validation_images(directory: Path) -> None:
    (directory / "val" / "blue").rename(directory / "blue")
    data = load_folder(directory, SHAPE)
    assert data.validation.labels.tolist() == [1, 1]
    assert data.describe_counts() == "4 training and 2 validation samples of 2 classes"


def test_class_only_in_validation_is_reported(directory: Path) -> None:
    (directory / "val" / "green").mkdir()
    with pytest.raises(TrainerError, match=f"{directory}/val has the class green, which {directory}/train lacks"):
        load_folder(directory, SHAPE)


def test_missing_pillow_is_one_line(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(TrainerError, match=r"image folders and RecordIO files need Pillow, .* -m pip install pillow"):
        load_folder(directory, SHAPE)


@pytest.mark.parametrize(("processes", "threads"), [("8", 12), ("96", 1), ("200", 1), (None, 96)])
def test_machines_processes_share_its_cores(
    processes: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(96)))
    assert decode_threads({} if processes is None else {"LOCAL_WORLD_SIZE": processes}) == threads
