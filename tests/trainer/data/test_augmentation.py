"""Test that the default augmentation of image folders makes a network generalize better than none."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.train.augmentation import learn
from trainer.config.settings import TrainConfig

SIZE, MARK = 16, 6
CLASSES, IMAGES = 3, 16


def make_folder(directory: Path) -> None:
    """Write images of a bright mark, whose color is the class: at the left for training, at the right for validation.

    A network of dense layers has other weights for each place, so training images alone do not teach it the right side.
    """
    random = np.random.default_rng(0)
    for part in ("train", "val"):
        for label in range(CLASSES):
            (directory / part / f"{label}").mkdir(parents=True)
            for number in range(IMAGES):
                pixels = random.integers(60, 120, (SIZE, SIZE, 3), np.uint8)
                top, margin = random.integers(SIZE - MARK), random.integers(2)
                left = margin if part == "train" else SIZE - MARK - margin
                pixels[top : top + MARK, left : left + MARK, label] = random.integers(170, 255)
                Image.fromarray(pixels).save(directory / part / f"{label}" / f"{number}.png")


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("seed", [0, 1])
def test_default_augmentation_beats_none(tmp_path: Path, seed: int) -> None:
    make_folder(tmp_path)

    def accuracy(augment: str) -> float:
        return learn(
            TrainConfig(
                network="tests.trainer.networks:perceptron",
                dataset="folder",
                data_dir=str(tmp_path),
                image_shape=(3, SIZE, SIZE),
                num_classes=CLASSES,
                batch_size_per_node=12,
                num_epochs=5,
                lr=0.05,
                augment=augment,
                seed=seed,
            )
        )

    without, augmented = accuracy("none"), accuracy("auto")
    assert without < 0.5
    assert augmented > 0.9
    assert augmented - without > 0.5
