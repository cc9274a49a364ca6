"""Load images to a GPU as bytes, while it trains, and crop, mirror and normalize them there.

The result equals bit by bit what trainer.data.batches computes on the CPU. A dataset that fits stays on the GPU; then
only the indices of the samples are copied. The loader runs in the thread that prepares the next batch.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.cuda_streams import select_device
from trainer.data import Images, Labels
from trainer.data.batches import PADDING, AugmentationParams, LoadBatch
from trainer.data.dataset import Dataset, InMemory, Samples
from trainer.data.sampling import Indices

RESIDENT_SHARE: Final = 0.25
"""Largest share of the free GPU memory, before the first step, that a resident dataset may take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceBatch:
    """A batch on the device."""

    images: torch.Tensor
    targets: torch.Tensor


def to_device(
    images: Images | DeviceBatch, labels: Labels, device: torch.device, *, channels_last: bool
) -> DeviceBatch:
    """Copy a batch to the device, unless it is there already."""
    if isinstance(images, DeviceBatch):
        return images
    layout = torch.channels_last if channels_last else torch.contiguous_format
    copied = torch.from_numpy(images).to(device, memory_format=layout)
    return DeviceBatch(images=copied, targets=torch.from_numpy(labels).to(device))


def split(batch: DeviceBatch, count: int) -> Iterator[DeviceBatch]:
    """Yield ``count`` micro-batches whose sizes differ by at most one sample."""
    both = (torch.tensor_split(tensor, count) for tensor in (batch.images, batch.targets))
    return (DeviceBatch(images=images, targets=targets) for images, targets in zip(*both, strict=True))


class MicroBatches:
    """A batch in parts, for --gradient-accumulation; the next part loads while the network trains on the last."""

    def __init__(
        self,
        load_batch: LoadBatch,
        samples: Samples,
        indices: Indices,
        params: AugmentationParams | None,
        *,
        count: int,
    ) -> None:
        """Load the first micro-batch."""
        self._load = partial(load_batch, samples, params=params)
        first, *self._others = np.array_split(indices, count)
        self._first = self._load(first)
        pixels = self._first[0]
        self.shape = (len(indices), *(pixels.images if isinstance(pixels, DeviceBatch) else pixels).shape[1:])
        """Shape of all images together."""

    def __iter__(self) -> Iterator[tuple[Images | DeviceBatch, Labels]]:
        """Yield the images and labels of each micro-batch."""
        ready = self._first
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="micro-batch") as worker:
            for indices in self._others:
                coming = worker.submit(self._load, indices)
                yield ready
                ready = coming.result()
        yield ready


def load_micro_batches(
    load_batch: LoadBatch, count: int, samples: Samples, indices: Indices, params: AugmentationParams | None = None
) -> tuple[MicroBatches, Labels]:
    """Return these samples as ``count`` micro-batches, and all labels; S3 has a label with its image."""
    return MicroBatches(load_batch, samples, indices, params, count=count), samples.labels[indices]


class DeviceLoader:
    """Loads samples to the device; see trainer.data.batches.LoadBatch."""

    def __init__(self, data: Dataset, *, device: torch.device, channels_last: bool, memory: int) -> None:
        """Copy the dataset to the device if it takes at most ``memory`` bytes."""
        self._data = data
        self._device = device
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # see cuda_streams
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1) for values in (data.mean, data.std)
        )
        self._margin = torch.from_numpy(np.rint(data.mean).astype(np.uint8)).to(device).view(-1, 1, 1)
        self._resident: dict[int, torch.Tensor] = {}
        self._make_resident(memory)

    def __call__(
        self, samples: Samples, indices: Indices, params: AugmentationParams | None = None
    ) -> tuple[DeviceBatch, Labels]:
        """Return these samples on the device, ready for the network, and their labels."""
        select_device(self._device)
        with self._on_side_stream() as stream:
            pixels = self._pixels(samples, indices, params)
            # Labels in S3 become known with their images.
            labels = samples.labels[indices]
            batch = DeviceBatch(images=self._prepare(pixels, indices, params), targets=self._send(labels))
            if stream is not None:
                # The training stream uses these tensors: do not reuse their memory before it is done.
                for tensor in (batch.images, batch.targets):
                    tensor.record_stream(torch.cuda.default_stream(self._device))
                stream.synchronize()
        return batch, labels

    def _make_resident(self, memory: int) -> None:
        both = (self._data.train, self._data.validation)
        pixels = [samples.pixels for samples in both if isinstance(samples, InMemory)]
        if len(pixels) == len(both) and sum(part.nbytes for part in pixels) <= memory:
            for samples, part in zip(both, pixels, strict=True):
                self._resident[id(samples)] = torch.from_numpy(part).to(self._device)

    def _pixels(self, samples: Samples, indices: Indices, params: AugmentationParams | None) -> torch.Tensor:
        if (resident := self._resident.get(id(samples))) is not None:
            return resident[self._send(indices)]
        return self._send(samples.read(indices, params.resized_crops if params else None))

    def _prepare(self, pixels: torch.Tensor, indices: Indices, params: AugmentationParams | None) -> torch.Tensor:
        """Crop, mirror and normalize on the device, as trainer.data.batches.load_and_transform does on the CPU."""
        _, height, width = self._data.image_shape
        crop_corners = params.crop_corners[indices] if params and params.crop_corners is not None else None
        if crop_corners is not None and pixels.shape[2:] == (height, width):
            padded = self._margin.expand(len(pixels), pixels.shape[1], height + 2 * PADDING, width + 2 * PADDING)
            padded = padded.contiguous()
            padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = pixels
            pixels = padded
        pixels = self._crop(pixels, crop_corners)
        if params:
            mirrored = self._send(params.mirrored[indices]).view(-1, 1, 1, 1)
            pixels = torch.where(mirrored, pixels.flip(3), pixels)
        images = pixels.to(torch.float32, memory_format=self._format)
        return images.sub_(self._mean).div_(self._std)

    def _crop(self, pixels: torch.Tensor, crop_corners: NDArray[np.float64] | None) -> torch.Tensor:
        _, height, width = self._data.image_shape
        margin = np.array(pixels.shape[2:]) - (height, width)
        if crop_corners is None:
            top, left = (int(side) for side in margin // 2)
            return pixels[:, :, top : top + height, left : left + width]
        tops, lefts = (self._send(side) for side in (crop_corners * (margin + 1)).astype(np.int64).T.copy())
        windows = pixels.unfold(2, height, 1).unfold(3, width, 1)
        return windows[torch.arange(len(pixels), device=self._device), :, tops, lefts]

    def _send(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if self._stream is None:
            return tensor.to(self._device)
        return tensor.pin_memory().to(self._device, non_blocking=True)

    @contextmanager
    def _on_side_stream(self) -> Iterator["torch.cuda.Stream | None"]:
        """Queue this block's work beside the training stream."""
        if self._stream is None:
            yield None
        else:
            with torch.cuda.stream(self._stream):
                yield self._stream


def device_loader(data: Dataset, *, device: torch.device, channels_last: bool) -> DeviceLoader:
    """Return a loader to a GPU; the dataset stays there if it takes little of the free memory."""
    free, _ = torch.cuda.mem_get_info(device)
    return DeviceLoader(data, device=device, channels_last=channels_last, memory=int(free * RESIDENT_SHARE))
