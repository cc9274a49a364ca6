"""Sum a step's gradients by DistributedDataParallel, the default between GPUs (docs/decisions/020).

It is set up as its documentation says for a network whose layers all run in every step: gradients are views of its
buckets, and no buffers are broadcast, since BatchNorm's statistics are averaged here. Its mean over the ranks becomes
the mean over the samples of all ranks. A rank without samples runs a backward pass of weight zero. Statistics, loss and
flags follow in one small all-reduce.
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
"""Images of a backward pass of weight zero: BatchNorm refuses a single one."""


class DataParallel:
    """Sums gradients during the backward pass, and a flat tensor of other values after it."""

    def __init__(
        self,
        model: nn.Module,
        sums: torch.Tensor,
        parameters: Sequence[nn.Parameter],
        *,
        collective: Collective,
    ) -> None:
        """Place the network first: its weights keep their layout from now on.

        Compile it first too: torch.compile then cuts it at the borders of the buckets (its DDPOptimizer), so that they
        travel while the rest of the backward pass runs.
        """
        with warnings.catch_warnings():
            # Torch 2.13 has another name for broadcast_buffers, which 2.12 does not know.
            warnings.simplefilter("ignore", FutureWarning)
            # Without init_sync: the backend sends the weights of a checkpoint or of rank 0 itself.
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
        """Forget the previous step's gradients; as None they cost the backward pass no addition."""
        self._sums.zero_()
        for parameter in self._parameters:
            parameter.grad = None

    @contextmanager
    def backward_pass(self, *, is_last: bool) -> Iterator[None]:
        """Run a part of the step in this block; the last part's backward pass sends the gradients of all."""
        if is_last:
            yield
        else:
            with self.module.no_sync():
                yield

    def run_without_samples(self, empty: torch.Tensor) -> None:
        """Run both passes on made-up images, shaped as those of the empty batch, with weight zero and without a trace.

        Otherwise the other ranks would wait for this one's gradients.
        """
        images = empty.new_zeros((MADE_UP_IMAGES, *empty.shape[1:]))
        before = [buffer.clone() for buffer in self.module.module.buffers()]
        torch.autograd.backward(self.module(images).float().sum() * 0)
        for buffer, value in zip(self.module.module.buffers(), before, strict=True):
            buffer.copy_(value)

    def finish(self) -> None:
        """Sum everything but the gradients, which the last backward pass has summed."""
        if any(parameter.grad is None for parameter in self._parameters):
            raise TrainerError(
                "a weight has no gradient in this step, as where a network skips a layer, "
                "which DistributedDataParallel cannot add up: try --reduction buckets"
            )
        self._collective.all_reduce(self._sums)

    def divide(self, *, samples: int) -> None:
        """Turn the mean over ranks, and the other sums, into means over the ``samples`` of all ranks."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        torch._foreach_mul_(gradients, torch.distributed.get_world_size() / samples)
        self._sums.div_(samples)
