"""Sum a step's gradients over all ranks, in buckets that overlap with the backward pass, or compressed.

For --deterministic and --reduction buckets on GPUs, and for --gc-type; reducers.py has the defaults.

Between GPUs the flat tensor of gradients is cut into buckets. The backward pass fills it from the end, as the last
layers' gradients are ready first, so bucket 0 is the last slice:

    gradients | bucket 2 | bucket 1 | bucket 0 | other sums
              <----- backward pass -----------

Buckets are sent strictly in order, on a side stream: bucket 1 waits for bucket 0 even if it is ready earlier. So all
ranks, and every rerun, sum the same buckets in the same order (Li et al. 2020, "PyTorch Distributed: Experiences on
Accelerating Data Parallel Training", section 3.2.3). The other sums follow the last bucket. A single all-reduce sums
everything when the gradients fit into one bucket, and a single compressed one sums the gradients on the ring between
CPUs. docs/decisions/020 compares this with DistributedDataParallel.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import nn

from trainer.cuda_streams import SideStream, record_event
from trainer.distributed.reduce.reducers import Communicator, FlatReducer
from trainer.errors import TrainerError

BUCKET_BYTES: Final = 25 * 2**20
"""The default bucket_cap_mb of DistributedDataParallel."""

GRADIENT_TWICE: Final = (
    "a parameter got two gradients in one backward pass, as with reentrant activation checkpointing: "
    "pass use_reentrant=False"
)
"""Error message for a network that buckets cannot support."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Gradients that are summed in one all-reduce."""

    span: slice
    """Their slice of the flat tensor."""
    parameter_indices: frozenset[int]
    """Positions of their parameters in the flat tensor's order."""


def cut_buckets(sizes: Sequence[int], *, min_size: int) -> list[Bucket]:
    """Cut buckets of at least ``min_size`` values from the end of the flat tensor; the last one gets the rest.

    ``sizes`` are the sizes of the parameters, in the order of the flat tensor.
    """
    buckets: list[Bucket] = []
    begin = end = sum(sizes)
    end_index = len(sizes)
    for index in reversed(range(len(sizes))):
        begin -= sizes[index]
        if end - begin >= min_size or index == 0:
            buckets.append(Bucket(span=slice(begin, end), parameter_indices=frozenset(range(index, end_index))))
            end, end_index = begin, index
    return buckets


class GradientBuckets(FlatReducer):
    """Sums a flat tensor over all ranks, the gradients in buckets or compressed."""

    def __init__(
        self,
        sums: torch.Tensor,
        parameters: Sequence[nn.Parameter],
        *,
        communicator: Communicator,
        compression: str = "none",
    ) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        super().__init__(sums, communicator=communicator)
        self._gradients, self._others = torch.split(sums, [sum(sizes), sums.numel() - sum(sizes)])
        self._compression = compression
        self._side_stream = SideStream(sums.device)
        buckets = cut_buckets(sizes, min_size=BUCKET_BYTES // sums.element_size()) if communicator.overlaps else []
        self._buckets = buckets if len(buckets) > 1 else []
        self._num_sent = 0
        """Number of buckets sent in this step, and so the index of the next one."""
        self._pending: list[set[int]] | None = None
        """Per bucket, the indices of parameters without a gradient yet; None outside the step's last backward pass."""
        for bucket_index, bucket in enumerate(self._buckets):
            for index in bucket.parameter_indices:
                hook = partial(self._on_gradient_ready, bucket_index, index)
                parameters[index].register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]  # torch's

    @contextmanager
    def backward_pass(self, *, is_last: bool) -> Iterator[None]:
        """Run a backward pass in this block; the last one of the step sends each bucket once it is ready."""
        if is_last:
            self.expect_last_backward()
        yield

    def shadow_backward(self, images: torch.Tensor) -> None:
        """Do nothing: finish() sends the buckets that no backward pass has sent."""

    def expect_last_backward(self) -> None:
        """Send buckets during the next backward pass, the last one of the step."""
        self._pending = [set(bucket.parameter_indices) for bucket in self._buckets]

    def finish(self) -> None:
        """Sum the rest; operations that this thread queues on the device afterwards see the sums."""
        self._pending = None
        if not self._buckets and self._compression == "none":
            super().finish()
            return
        while self._num_sent < len(self._buckets):
            self._send_next()
        self._num_sent = 0
        self._side_stream.join()
        if not self._buckets:
            self._communicator.all_reduce(self._gradients, compression=self._compression)
        self._communicator.all_reduce(self._others)

    def _on_gradient_ready(self, bucket_index: int, parameter_index: int, _: torch.Tensor) -> None:
        """Note that a parameter's gradient is complete, and send the next buckets that are complete."""
        if self._pending is None:
            return  # Not the step's last micro-batch: later ones add to this gradient.
        if parameter_index not in self._pending[bucket_index]:
            raise TrainerError(GRADIENT_TWICE)
        self._pending[bucket_index].remove(parameter_index)
        while self._num_sent < len(self._buckets) and not self._pending[self._num_sent]:
            self._send_next()

    def _send_next(self) -> None:
        bucket = self._buckets[self._num_sent]
        self._num_sent += 1
        with self._side_stream.after(record_event(self._sums.device)):
            self._communicator.all_reduce(self._gradients[bucket.span], compression=self._compression)
