"""Test that batches prepared on the device equal those of the CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from trainer.data.batches import Augmentation, load_and_transform
from trainer.data.dataset import Dataset
from trainer.data.synthetic import make_synthetic
from trainer.torch_backend.device_loader import DeviceBatch, DeviceLoader, split, to_device

CPU = torch.device("cpu")
DATA = make_synthetic((3, 12, 10), samples=40)
PLENTY = 2**30
INDICES = np.array([3, 39, 3, 0, 17])
NO_FLAGS = Augmentation()
ALL = Augmentation(random_crop=True, random_mirror=True, seed=1)


def is_resident(loader: DeviceLoader) -> bool:
    """Return True if all samples are on the device."""
    return bool(loader._resident)


def read(
    data: Dataset, augmentation: Augmentation, *, memory: int, channels_last: bool
) -> tuple[DeviceBatch, list[int]]:
    loader = DeviceLoader(data, device=CPU, channels_last=channels_last, memory=memory)
    assert is_resident(loader) is bool(memory)
    placed, labels = loader(data.train, INDICES, augmentation.draw(epoch=2, samples=40))
    return placed, labels.tolist()


@pytest.mark.parametrize("memory", [0, PLENTY])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("augmentation", [NO_FLAGS, ALL, replace(ALL, random_crop=False), replace(ALL, seed=5)])
@pytest.mark.parametrize("shape", [(3, 12, 10), (3, 9, 8)])
def test_batch_matches_the_cpu_loader_bit_for_bit(
    shape: tuple[int, int, int], augmentation: Augmentation, channels_last: bool, memory: int
) -> None:
    data = replace(DATA, image_shape=shape)
    images, labels = load_and_transform(data, data.train, INDICES, augmentation.draw(epoch=2, samples=40))
    placed, found = read(data, augmentation, memory=memory, channels_last=channels_last)
    assert np.array_equal(placed.images.numpy(), images)
    assert placed.targets.tolist() == found == labels.tolist()
    if channels_last:
        assert placed.images.is_contiguous(memory_format=torch.channels_last)


def test_too_large_dataset_stays_on_the_host() -> None:
    size = sum(part.pixels.nbytes for part in (DATA.train, DATA.validation))  # type: ignore[attr-defined]  # both are in memory
    for memory, fits in ((size - 1, False), (size, True)):
        assert is_resident(DeviceLoader(DATA, device=CPU, channels_last=False, memory=memory)) is fits


def test_small_batch_is_split_evenly() -> None:
    images, labels = load_and_transform(DATA, DATA.train, INDICES)
    placed = to_device(images, labels, CPU, channels_last=False)
    assert to_device(placed, labels, CPU, channels_last=True) is placed
    assert [len(part.targets) for part in split(placed, 3)] == [2, 2, 1]
    assert [len(part.targets) for part in split(placed, 7)] == [1, 1, 1, 1, 1, 0, 0]
    assert torch.equal(torch.cat([part.images for part in split(placed, 3)]), placed.images)
