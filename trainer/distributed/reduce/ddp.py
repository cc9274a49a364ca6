"""Sum a step's gradients with DistributedDataParallel, the default between GPUs (docs/decisions/020).

Gradients are views of DDP's buckets. DDP broadcasts no buffers, as this module averages BatchNorm's statistics, in one
small all-reduce with loss and flags. DDP's mean over ranks is rescaled to the mean over samples. A rank without samples
runs a backward pass with weight zero.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer.distributed.reduce.collective import Collective
from trainer.errors import TrainerError

MADE_UP_IMAGES: Final = 2
"""Number of images in the backward pass with weight zero: BatchNorm rejects a single one."""


class DdpReducer:
    """Sums gradients during the backward pass, and a flat tensor of other values after it."""

    def __init__(
        self,
        model: nn.Module,
        sums: torch.Tensor,
        parameters: Sequence[nn.Parameter],
        *,
        collective: Collective,
    ) -> None:
        """Wrap the network. Set its memory layout before: DistributedDataParallel records it.

        Compile it before, too: torch.compile then splits the graph at the bucket boundaries (its DDPOptimizer), so that
        buckets are sent during the backward pass.
        """
        with warnings.catch_warnings():
            # Torch 2.13 renamed broadcast_buffers; 2.12 knows only the old name.
            warnings.simplefilter("ignore", FutureWarning)
            # No init_sync: TorchBackend.restore broadcasts the weights.
            self.module = DistributedDataParallel(
                model,
                device_ids=[sums.device] if sums.device.type == "cuda" else None,
                init_sync=False,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
            )
        self._sums = sums
        self._parameters = parameters
        self._collective = collective

    def begin(self) -> None:
        """Clear the previous step's gradients; set to None, the backward pass writes them instead of adding."""
        self._sums.zero_()
        for parameter in self._parameters:
            parameter.grad = None

    @contextmanager
    def backward_pass(self, *, is_last: bool) -> Iterator[None]:
        """Run a backward pass in this block; the last one of the step sends the accumulated gradients."""
        if is_last:
            yield
        else:
            with self.module.no_sync():
                yield

    def run_without_samples(self, empty: torch.Tensor) -> None:
        """Run forward and backward on zero images with weight zero, and restore the buffers.

        Otherwise the other ranks would wait for this rank's gradients.
        """
        images = empty.new_zeros((MADE_UP_IMAGES, *empty.shape[1:]))
        before = [buffer.clone() for buffer in self.module.module.buffers()]
        torch.autograd.backward(self.module(images).float().sum() * 0)
        for buffer, value in zip(self.module.module.buffers(), before, strict=True):
            buffer.copy_(value)

    def finish(self) -> None:
        """Sum the other values; the last backward pass has summed the gradients."""
        if any(parameter.grad is None for parameter in self._parameters):
            raise TrainerError(
                "a weight has no gradient in this step, as where a network skips a layer, "
                "which DistributedDataParallel cannot add up: try --reduction buckets"
            )
        self._collective.all_reduce(self._sums)

    def divide(self, *, samples: int) -> None:
        """Turn the gradients' mean over ranks, and the other sums, into means over the ``samples`` of all ranks."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        torch._foreach_mul_(gradients, torch.distributed.get_world_size() / samples)
        self._sums.div_(samples)
