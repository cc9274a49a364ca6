"""Prepare batches for the network: crop, mirror and normalize, some batches ahead of training."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from trainer.config.settings import TrainConfig
from trainer.data import Images, Labels, Pixels
from trainer.data.dataset import Dataset, Samples
from trainer.data.resized_crop import ResizedCrops
from trainer.data.sampling import Indices, global_batches
from trainer.distributed.data_parallel import DataParallelGroup

PADDING: Final = 4
"""Pixels added on each side of an image without a margin to crop from: He et al. (2015), section 4.2."""
AUGMENTATION_STREAM: Final = 1
"""Number of the random stream that augmentation draws from; the sample order draws from another."""
PREFETCH_BATCHES: Final = 3
"""Number of batches prepared ahead, so that a slow batch, such as one of large images, delays no step."""

Item = TypeVar("Item")
Ready = TypeVar("Ready")


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """Random changes to training images, drawn from seed, epoch and sample, so that they don't depend on the ranks."""

    resized_crop: bool = False
    """Crop and resize a random part of samples that are decoded when they are read, instead of ``random_crop``."""
    random_crop: bool = False
    random_mirror: bool = False
    seed: int = 0

    @classmethod
    def from_config(cls, config: TrainConfig) -> "Augmentation":
        """Return the augmentation of these settings."""
        augmentations = config.augmentations
        return cls(
            resized_crop="resized-crop" in augmentations,
            random_crop="crop" in augmentations,
            random_mirror="mirror" in augmentations,
            seed=config.seed,
        )

    def draw(self, *, epoch: int, samples: int) -> "AugmentationParams | None":
        """Draw the random numbers of an epoch's samples; None without augmentation."""
        if not (self.resized_crop or self.random_crop or self.random_mirror):
            return None
        numbers = np.random.default_rng([self.seed, epoch, AUGMENTATION_STREAM]).random((samples, 3))
        return AugmentationParams(
            resized_crops=ResizedCrops(seed=self.seed, epoch=epoch) if self.resized_crop else None,
            crop_corners=numbers[:, :2] if self.random_crop else None,
            mirrored=numbers[:, 2] < 0.5 if self.random_mirror else np.zeros(samples, np.bool_),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AugmentationParams:
    """The random parameters of each sample in one epoch."""

    resized_crops: ResizedCrops | None = None
    crop_corners: NDArray[np.float64] | None
    """Shape (samples, 2): the crop's upper left corner, from 0 to 1 of the available margin. None: the middle."""
    mirrored: NDArray[np.bool_]


class LoadBatch(Protocol):
    """Function that loads batches in the backend's form, in the prefetching thread."""

    def __call__(
        self, samples: Samples, indices: Indices, params: AugmentationParams | None = None
    ) -> tuple[Any, Labels]:
        """Return these samples in the backend's form, and their labels."""


class Batch(NamedTuple):
    """One rank's share of a step's batch."""

    step: int
    """Number of the step in its epoch, from 1."""
    num_samples: int
    """Number of samples in this step, on all ranks together."""
    images: Any
    labels: Labels


def epoch_batches(
    samples: Samples,
    load_batch: LoadBatch,
    *,
    augmentation: Augmentation,
    dp: DataParallelGroup,
    global_batch_size: int,
    seed: int,
    epoch: int,
    begin: int = 0,
    end: int | None = None,
) -> Generator[Batch, None, None]:
    """Yield this rank's batches of an epoch from its sample ``begin`` to ``end``; close it when leaving early."""
    total = len(samples.labels)
    params = augmentation.draw(epoch=epoch, samples=total)
    batches = global_batches(total, global_batch_size=global_batch_size, seed=seed, epoch=epoch, begin=begin, end=end)

    def prepare_batch(numbered: tuple[int, Indices]) -> Batch:
        step, batch = numbered
        return Batch(step, len(batch), *load_batch(samples, dp.select(batch), params))

    return prefetch(enumerate(batches, start=begin // global_batch_size + 1), prepare_batch)


def load_and_transform(
    data: Dataset, samples: Samples, indices: NDArray[np.int64], params: AugmentationParams | None = None
) -> tuple[Images, Labels]:
    """Read, crop, mirror and normalize these samples."""
    pixels = samples.read(indices, params.resized_crops if params else None)
    _, height, width = data.image_shape
    crop_corners = params.crop_corners[indices] if params and params.crop_corners is not None else None
    if crop_corners is not None and pixels.shape[2:] == (height, width):
        pixels = _pad(pixels, data.mean)
    pixels = _crop(pixels, height, width, crop_corners)
    if params:
        mirrored = params.mirrored[indices]
        pixels[mirrored] = pixels[mirrored, :, :, ::-1]
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (data.mean, data.std))
    return (pixels - mean) / std, samples.labels[indices]


def _pad(pixels: Pixels, mean: tuple[float, ...]) -> Pixels:
    """Add a margin of the mean color, which normalizes to 0 as in the paper."""
    count, channels, height, width = pixels.shape
    padded = np.empty((count, channels, height + 2 * PADDING, width + 2 * PADDING), np.uint8)
    padded[:] = np.rint(np.array(mean))[:, None, None]
    padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = pixels
    return padded


def _crop(pixels: Pixels, height: int, width: int, crop_corners: NDArray[np.float64] | None) -> Pixels:
    """Crop images to this size, each at its own corner or in the middle."""
    margin = np.array(pixels.shape[2:]) - (height, width)
    if crop_corners is None:
        top, left = margin // 2
        return pixels[:, :, top : top + height, left : left + width]
    tops, lefts = (crop_corners * (margin + 1)).astype(np.int64).T
    windows = sliding_window_view(pixels, (height, width), axis=(2, 3))
    return windows[np.arange(len(pixels)), :, tops, lefts]


def prefetch(items: Iterable[Item], function: Callable[[Item], Ready]) -> Generator[Ready, None, None]:
    """Apply the function in a thread, PREFETCH_BATCHES ahead of the item yielded; close it when leaving early."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="data")
    waiting: deque[Future[Ready]] = deque()
    try:
        for item in items:
            waiting.append(worker.submit(function, item))
            if len(waiting) > PREFETCH_BATCHES:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        worker.shutdown(cancel_futures=True)
