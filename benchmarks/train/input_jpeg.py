"""Compare the trainer's JPEG reader with PyTorch's DataLoader, in images per core-second.

Both read the same synthetic photographs of ImageNet's usual size (500x375), decode them with Pillow, scale a random
part of each to 224x224, mirror every second one and normalize it, into batches of float32. The baseline is a
torch.utils.data.DataLoader as in PyTorch's ImageNet example: one process per core, each sample decoded completely,
cropped and scaled by Pillow as in torchvision's RandomResizedCrop, and converted to a tensor. The CPU time of all
threads and processes counts; both run in turn, and the best round counts.

``input_jpeg`` is our speed divided by the baseline's; at least 1 means that ours needs no more CPU time. Run by
``make bench B=input_jpeg``.
"""

import os
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from trainer.data.batches import Augmentation, epoch_batches, load_and_transform
from trainer.data.images.decoding import MEAN, STD
from trainer.data.images.folder import load_folder
from trainer.data.resized_crop import ResizedCrops
from trainer.distributed.data_parallel import DataParallelGroup

SHAPE = (3, 224, 224)
WIDTH, HEIGHT = 500, 375
IMAGES, BATCH = 1024, 64
"""Enough images that the start of the DataLoader's processes, whose CPU time counts too, hardly matters."""
ROUNDS = 3


class JpegFiles(Dataset[tuple[torch.Tensor, int]]):
    """The baseline's samples."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths
        self._mean, self._std = (torch.tensor(values).view(3, 1, 1) / 255 for values in (MEAN, STD))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self._paths[index]) as image:
            decoded = image.convert("RGB")
        box = ResizedCrops(seed=0, epoch=0).box(index, width=decoded.width, height=decoded.height)
        part = decoded.crop(box).resize(SHAPE[1:], Image.Resampling.BILINEAR)
        if index % 2:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(part)).permute(2, 0, 1).contiguous().float().div(255)
        return pixels.sub_(self._mean).div_(self._std), 0


def make_photographs(directory: Path, *, count: int) -> None:
    """Write `count` training images, and one for validation, with as much detail as photographs: about 100 kB each."""
    noise = np.random.default_rng(0)
    for part, size in (("train", count), ("val", 1)):
        (directory / part / "a").mkdir(parents=True)
        for number in range(size):
            coarse = Image.fromarray(noise.integers(0, 255, (24, 32, 3), np.uint8)).resize((WIDTH, HEIGHT))
            grain = noise.normal(0, 12, (HEIGHT, WIDTH, 3))
            pixels = np.clip(np.asarray(coarse) + grain, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(directory / part / "a" / f"{number:04}.jpg", quality=90)


def read_ours(directory: Path) -> int:
    """Read an epoch with the trainer's reader; return the number of images."""
    data = load_folder(directory, SHAPE)
    batches = epoch_batches(
        data.train,
        lambda samples, indices, params=None: load_and_transform(data, samples, indices, params),
        augmentation=Augmentation(resized_crop=True, random_mirror=True),
        dp=DataParallelGroup(),
        global_batch_size=BATCH,
        seed=0,
        epoch=0,
    )
    return sum(len(batch.images) for batch in batches)


def read_peers(directory: Path) -> int:
    """Read an epoch with PyTorch's DataLoader; return the number of images."""
    files = JpegFiles(sorted((directory / "train" / "a").iterdir()))
    loader = DataLoader(files, batch_size=BATCH, shuffle=True, num_workers=len(os.sched_getaffinity(0)))
    return sum(len(images) for images, _ in loader)


def core_seconds() -> float:
    """Return the CPU time of this process and of its ended children, in seconds."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def speed(read: Callable[[Path], int], directory: Path) -> float:
    """Return images per core-second."""
    started = core_seconds()
    return read(directory) / (core_seconds() - started)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        make_photographs(Path(name), count=IMAGES)
        pairs = [(speed(read_ours, Path(name)), speed(read_peers, Path(name))) for _ in range(ROUNDS)]
    ours, peers = (max(speeds) for speeds in zip(*pairs, strict=True))
    print(f"images per core-second: ours {ours:.0f}, DataLoader {peers:.0f}")
    print(f"input_jpeg {ours / peers:.2f} ratio")


if __name__ == "__main__":
    main()
