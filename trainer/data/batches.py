"""Makes batches ready for the network: cropped, mirrored, normalised, one ahead of the training."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from trainer.data import Images, Labels, Pixels
from trainer.data.samples import DataSet, Samples

PADDING: Final = 4
"""Pixels on each side of an image that has no margin to be cropped from: He et al. (2015), section 4.2."""
AUGMENTATION: Final = 1
"""Keeps these random numbers apart from those of the samples' order."""

Item = TypeVar("Item")
Ready = TypeVar("Ready")


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """What may happen to a training image: drawn for the seed, the epoch and the sample, whoever trains on it when."""

    random_crop: bool = False
    random_mirror: bool = False
    seed: int = 0

    def draw(self, *, epoch: int, samples: int) -> "Draws | None":
        """Draw for all samples of an epoch; None where nothing is to happen."""
        if not (self.random_crop or self.random_mirror):
            return None
        numbers = np.random.default_rng([self.seed, epoch, AUGMENTATION]).random((samples, 3))
        return Draws(
            places=numbers[:, :2] if self.random_crop else None,
            mirrored=numbers[:, 2] < 0.5 if self.random_mirror else np.zeros(samples, np.bool_),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """What happens to each sample in one epoch."""

    places: NDArray[np.float64] | None
    """Shape (samples, 2): of the crop's upper left corner, from 0 to 1 of the room that there is. None: the middle."""
    mirrored: NDArray[np.bool_]


def prepare(
    data: DataSet, samples: Samples, indices: NDArray[np.int64], draws: Draws | None = None
) -> tuple[Images, Labels]:
    """Read these samples and make them what the network sees."""
    pixels = samples.read(indices)
    _, height, width = data.image_shape
    places = draws.places[indices] if draws and draws.places is not None else None
    if places is not None and pixels.shape[2:] == (height, width):
        pixels = _pad(pixels, data.mean)
    pixels = _crop(pixels, height, width, places)
    if draws:
        mirrored = draws.mirrored[indices]
        pixels[mirrored] = pixels[mirrored, :, :, ::-1]
    mean, deviation = (np.array(values, np.float32)[:, None, None] for values in (data.mean, data.deviation))
    return (pixels - mean) / deviation, samples.labels[indices]


def _pad(pixels: Pixels, mean: tuple[float, ...]) -> Pixels:
    """Add a margin of the mean's colour, which becomes 0 as in the paper."""
    count, channels, height, width = pixels.shape
    padded = np.empty((count, channels, height + 2 * PADDING, width + 2 * PADDING), np.uint8)
    padded[:] = np.rint(np.array(mean))[:, None, None]
    padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = pixels
    return padded


def _crop(pixels: Pixels, height: int, width: int, places: NDArray[np.float64] | None) -> Pixels:
    """Cut images of this size out, each at its place or in the middle."""
    room = np.array(pixels.shape[2:]) - (height, width)
    if places is None:
        top, left = room // 2
        return pixels[:, :, top : top + height, left : left + width]
    tops, lefts = (places * (room + 1)).astype(np.int64).T
    windows = sliding_window_view(pixels, (height, width), axis=(2, 3))
    return windows[np.arange(len(pixels)), :, tops, lefts]


def ahead(items: Iterable[Item], prepare: Callable[[Item], Ready]) -> Generator[Ready, None, None]:
    """Prepare the items in a thread, one ahead of the one that is yielded; to be closed when it is left early."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="data")
    waiting: deque[Future[Ready]] = deque()
    try:
        for item in items:
            waiting.append(worker.submit(prepare, item))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        worker.shutdown(cancel_futures=True)
