"""Test that batches are normalized, augmented and prepared ahead."""

import threading
from contextlib import closing

import numpy as np
import pytest

from trainer.data.batches import PREFETCH_BATCHES, Augmentation, AugmentationParams, load_and_transform, prefetch
from trainer.data.dataset import Dataset, InMemory, make_dataset
from trainer.errors import TrainerError

COUNT = 40
BOTH = Augmentation(random_crop=True, random_mirror=True, seed=3)


@pytest.fixture
def data() -> Dataset:
    pixels = np.random.default_rng(0).integers(256, size=(COUNT, 3, 8, 8), dtype=np.uint8)
    samples = InMemory(pixels=pixels, labels=np.arange(COUNT))
    return make_dataset(samples, samples, num_classes=COUNT, source="test")


def test_dataset_is_normalized_by_its_mean_and_deviation(data: Dataset) -> None:
    images, labels = load_and_transform(data, data.train, np.arange(COUNT))
    assert images.dtype == np.float32
    assert np.allclose(images.mean(axis=(0, 2, 3)), 0, atol=1e-6)
    assert np.allclose(images.std(axis=(0, 2, 3)), 1, atol=1e-6)
    assert labels.tolist() == list(range(COUNT))


def test_constant_channel_becomes_zero() -> None:
    samples = InMemory(pixels=np.full((2, 1, 4, 4), 9, np.uint8), labels=np.zeros(2, np.int64))
    images, _ = load_and_transform(make_dataset(samples, samples, num_classes=1, source="test"), samples, np.arange(2))
    assert not images.any()


def test_augmentation_depends_only_on_seed_epoch_and_sample(data: Dataset) -> None:
    params = BOTH.draw(epoch=1, samples=COUNT)
    whole, _ = load_and_transform(data, data.train, np.arange(COUNT), params)
    some = np.array([7, 30, 2])
    again, _ = load_and_transform(data, data.train, some, BOTH.draw(epoch=1, samples=COUNT))
    assert np.array_equal(whole[some], again)
    for other in (
        BOTH.draw(epoch=2, samples=COUNT),
        Augmentation(random_crop=True, seed=4).draw(epoch=1, samples=COUNT),
    ):
        assert not np.array_equal(whole, load_and_transform(data, data.train, np.arange(COUNT), other)[0])


def test_crop_is_part_of_the_padded_image(data: Dataset) -> None:
    params = Augmentation(random_crop=True).draw(epoch=0, samples=COUNT)
    images, _ = load_and_transform(data, data.train, np.arange(COUNT), params)
    margin = ((0, 0), (0, 0), (4, 4), (4, 4))
    originals, _ = load_and_transform(data, data.train, np.arange(COUNT))
    padded = np.pad(originals, margin, constant_values=np.nan)
    places = set()
    for image, original in zip(images, padded, strict=True):
        found = [
            (top, left)
            for top in range(9)
            for left in range(9)
            if np.all(np.isnan(part := original[:, top : top + 8, left : left + 8]) | (part == image))
        ]
        assert found
        places.add(found[0])
    assert len(places) > COUNT / 2


def test_crops_cover_every_corner(data: Dataset) -> None:
    # Nine positions, with a margin of four on each side.
    middles = (np.arange(9) + 0.5) / 9
    nine = np.arange(9)
    params = AugmentationParams(crop_corners=np.stack([middles, middles[::-1]], axis=1), mirrored=np.zeros(9, np.bool_))
    images, _ = load_and_transform(data, data.train, nine, params)
    originals, _ = load_and_transform(data, data.train, nine)
    padded = np.pad(originals, ((0, 0), (0, 0), (4, 4), (4, 4)), constant_values=np.nan)
    for top, (image, original) in enumerate(zip(images, padded, strict=True)):
        expected = original[:, top : top + 8, 8 - top : 16 - top]
        inside = ~np.isnan(expected)
        assert inside.any()
        assert np.array_equal(image[inside], expected[inside])


def test_about_half_of_the_images_are_mirrored(data: Dataset) -> None:
    params = Augmentation(random_mirror=True).draw(epoch=0, samples=COUNT)
    images, _ = load_and_transform(data, data.train, np.arange(COUNT), params)
    originals, _ = load_and_transform(data, data.train, np.arange(COUNT))
    kept = [np.array_equal(*pair) for pair in zip(images, originals, strict=True)]
    mirrored = [np.array_equal(image, original[:, :, ::-1]) for image, original in zip(images, originals, strict=True)]
    assert all(a != b for a, b in zip(kept, mirrored, strict=True))
    assert COUNT / 4 < sum(mirrored) < 3 * COUNT / 4


def test_next_batches_are_prepared_while_one_is_used() -> None:
    prepared: dict[int, threading.Event] = {item: threading.Event() for item in range(PREFETCH_BATCHES + 2)}

    def note(item: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        prepared[item].set()
        return item

    # A single one would leave a GPU idle whenever a batch takes longer than a step.
    assert PREFETCH_BATCHES > 1
    with closing(prefetch(range(PREFETCH_BATCHES + 2), note)) as items:
        assert next(items) == 0
        assert prepared[PREFETCH_BATCHES].wait(timeout=60)
        assert not prepared[PREFETCH_BATCHES + 1].is_set()
        assert list(items) == [*range(1, PREFETCH_BATCHES + 2)]


def test_loader_error_is_raised_at_its_batch() -> None:
    def fail(item: int) -> int:
        if item == 1:
            raise TrainerError("cannot read the image")
        return item

    items = prefetch(range(3), fail)
    assert next(items) == 0
    with pytest.raises(TrainerError, match="cannot read the image"):
        next(items)
