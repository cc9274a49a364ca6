"""Test random parts of images, and a training run that needs them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trainer.data.batches import Augmentation, load_and_transform
from trainer.data.images.folder import load_folder
from trainer.data.resized_crop import RATIOS, SCALES, ResizedCrops

WIDTH, HEIGHT = 200, 160
SAMPLES = 500


def test_random_parts_have_the_papers_areas_and_ratios_and_cover_the_image() -> None:
    boxes = [ResizedCrops(seed=1, epoch=2).box(sample, width=WIDTH, height=HEIGHT) for sample in range(SAMPLES)]
    sizes = np.array([(box.right - box.left, box.bottom - box.top) for box in boxes])
    areas, ratios = sizes.prod(axis=1) / (WIDTH * HEIGHT), sizes[:, 0] / sizes[:, 1]
    assert SCALES[0] - 0.01 < areas.min() < 0.1
    assert areas.max() > 0.8
    assert RATIOS[0] - 0.05 < ratios.min() < 0.8
    assert 1.25 < ratios.max() < RATIOS[1] + 0.05
    corners = np.array(boxes)
    assert (corners.min(axis=0)[:2] == 0).all()
    assert corners.max(axis=0)[2:].tolist() == [WIDTH, HEIGHT]


def test_random_part_depends_only_on_seed_epoch_and_sample() -> None:
    def box(seed: int, epoch: int, sample: int) -> tuple[int, ...]:
        return ResizedCrops(seed=seed, epoch=epoch).box(sample, width=WIDTH, height=HEIGHT)

    assert box(1, 2, 3) == box(1, 2, 3)
    assert len({box(1, 2, 3), box(2, 2, 3), box(1, 3, 3), box(1, 2, 4)}) == 4


def test_image_without_a_fitting_part_is_cropped_in_the_middle() -> None:
    assert ResizedCrops(seed=0, epoch=0).box(0, width=3000, height=1) == (1499, 0, 1500, 1)


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_random_part_is_scaled_to_the_networks_size(tmp_path: Path, suffix: str) -> None:
    # Red increases to the right and green downwards, so they show where a pixel comes from.
    across, down = np.meshgrid(np.linspace(0, 255, 640), np.linspace(0, 255, 480))
    pixels = np.stack([across, down, np.zeros_like(down)], axis=2).astype(np.uint8)
    for part in ("train", "val"):
        (tmp_path / part / "a").mkdir(parents=True)
        Image.fromarray(pixels).save(tmp_path / part / "a" / f"a.{suffix}")
    data = load_folder(tmp_path, (3, 32, 32))
    params = Augmentation(resized_crop=True, seed=3).draw(epoch=1, samples=1)
    assert params is not None
    images, _ = load_and_transform(data, data.train, np.array([0]), params)
    assert images.shape == (1, 3, 32, 32)
    shown = data.train.read(np.array([0]), params.resized_crops)[0]
    box = ResizedCrops(seed=3, epoch=1).box(0, width=640, height=480)
    expected = (255 * box.left / 640, 255 * box.right / 640, 255 * box.top / 480, 255 * box.bottom / 480)
    found = (shown[0, :, 0].mean(), shown[0, :, -1].mean(), shown[1, 0].mean(), shown[1, -1].mean())
    assert np.allclose(found, expected, atol=8)
