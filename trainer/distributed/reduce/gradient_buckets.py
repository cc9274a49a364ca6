"""Sum a step's gradients over all ranks, in buckets that overlap with the backward pass.

Between GPUs the flat tensor of gradients is cut into buckets, from its end: the last layers' gradients are ready first.
A bucket is sent when it and all behind it are ready, on a stream beside the backward pass. So all ranks sum the same
buckets in the same order, whatever each one's backward pass reaches, and so does the next run (Li et al. 2020, "PyTorch
Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.3; docs/decisions/020 says when this is
used and when DistributedDataParallel). Everything else that is summed follows the last bucket. Gradients that fit into
one bucket, and those that go around the ring between CPUs, need a single operation.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import nn

from trainer.distributed.reduce.collective import Collective
from trainer.errors import TrainerError
from trainer.side_stream import SideStream, record_event

BUCKET_BYTES: Final = 25 * 2**20
"""The default bucket_cap_mb of DistributedDataParallel."""

GRADIENT_TWICE: Final = (
    "a weight's gradient comes twice in a backward pass, as with torch.utils.checkpoint's use_reentrant, "
    "which between GPUs must be False"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Gradients that are summed in one operation."""

    span: slice
    """Where they lie in the flat tensor."""
    parameters: frozenset[int]
    """Indices of their parameters."""


def cut_buckets(sizes: Sequence[int], *, least: int) -> list[Bucket]:
    """Cut buckets of at least this many values; the last one holds the rest, at the beginning of the flat tensor.

    ``sizes`` are the parameters' numbers of values, in the order of the flat tensor.
    """
    buckets: list[Bucket] = []
    begin = end = sum(sizes)
    last = len(sizes)
    for index in reversed(range(len(sizes))):
        begin -= sizes[index]
        if end - begin >= least or index == 0:
            buckets.append(Bucket(span=slice(begin, end), parameters=frozenset(range(index, last))))
            end, last = begin, index
    return buckets


class GradientBuckets:
    """Sums a flat tensor, gradients first and other values behind, over all ranks."""

    def __init__(
        self, sums: torch.Tensor, parameters: Sequence[nn.Parameter], *, collective: Collective, gc_type: str = "none"
    ) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        self._sums = sums
        self._gradients, self._others = torch.split(sums, [sum(sizes), sums.numel() - sum(sizes)])
        self._collective = collective
        self._gc_type = gc_type
        self._side_stream = SideStream(sums.device)
        buckets = cut_buckets(sizes, least=BUCKET_BYTES // sums.element_size()) if collective.overlaps else []
        self._buckets = buckets if len(buckets) > 1 else []
        self._sent = 0
        self._missing: list[set[int]] | None = None
        """Parameters whose gradient each bucket still misses, during the step's last backward pass."""
        for number, bucket in enumerate(self._buckets):
            for index in bucket.parameters:
                ready = partial(self._on_ready, number, index)
                parameters[index].register_post_accumulate_grad_hook(ready)  # type: ignore[no-untyped-call]  # torch's

    def begin(self) -> None:
        """Forget the previous step's sums."""
        self._sums.zero_()

    @contextmanager
    def backward_pass(self, *, is_last: bool) -> Iterator[None]:
        """Run a part of the step in this block; the last part's backward pass sends each bucket once it is ready."""
        if is_last:
            self.expect_last_backward()
        yield

    def run_without_samples(self, empty: torch.Tensor) -> None:
        """Do nothing: finish() sends every bucket, whatever this rank's backward pass has reached."""

    def divide(self, *, samples: int) -> None:
        """Turn all sums into means over the ``samples`` of all ranks."""
        self._sums.div_(samples)

    def expect_last_backward(self) -> None:
        """Send buckets from now on: the next backward pass is this rank's last of the step."""
        self._missing = [set(bucket.parameters) for bucket in self._buckets]

    def finish(self) -> None:
        """Sum everything that has not been sent; this thread's next work on the device sees the sums."""
        self._missing = None
        if not self._buckets and self._gc_type == "none":
            self._collective.all_reduce(self._sums)
            return
        while self._sent < len(self._buckets):
            self._send_next()
        self._sent = 0
        self._side_stream.join()
        if not self._buckets:
            self._collective.all_reduce(self._gradients, gc_type=self._gc_type)
        self._collective.all_reduce(self._others)

    def _on_ready(self, number: int, index: int, _: torch.Tensor) -> None:
        """Note that the flat tensor holds a parameter's gradient, and send all buckets that are complete."""
        if self._missing is None:
            return  # An earlier batch of the same step: later ones will add to this gradient.
        if index not in self._missing[number]:
            raise TrainerError(GRADIENT_TWICE)
        self._missing[number].remove(index)
        while self._sent < len(self._buckets) and not self._missing[self._sent]:
            self._send_next()

    def _send_next(self) -> None:
        bucket = self._buckets[self._sent]
        self._sent += 1
        with self._side_stream.after(record_event(self._sums.device)):
            self._collective.all_reduce(self._gradients[bucket.span], gc_type=self._gc_type)
