"""Sums of a step over all ranks: the gradients' while the backward pass computes those of earlier layers.

Between GPUs the vector of gradients is cut into buckets, from its end: the last layers' gradients are ready first. A
bucket is added up when it and all behind it are ready, in a stream beside the backward pass. So all ranks add up the
same buckets in the same order, whatever each one's backward pass reaches, and so does the next run (Li et al. 2020,
"PyTorch Distributed: Experiences on Accelerating Data Parallel Training", section 3.2.3; why this is not its
DistributedDataParallel: docs/decisions/020). What else is summed travels behind the last bucket. Gradients that fit
into one bucket, and those that go around the ring between CPUs, need one operation for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import nn

from trainer.engines.collective import Collective
from trainer.engines.streams import Beside, mark
from trainer.errors import TrainerError

BUCKET_BYTES: Final = 25 * 2**20
"""As DistributedDataParallel's bucket_cap_mb."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Gradients that are added up at once."""

    place: slice
    """In the vector."""
    parameters: frozenset[int]
    """Numbers of those whose gradients lie there."""


def cut(sizes: Sequence[int], *, least: int) -> list[Bucket]:
    """Return buckets of at least so many values, but for the last, which has what is left of the vector's beginning.

    ``sizes`` are the parameters' numbers of values, one after the other in the vector.
    """
    buckets: list[Bucket] = []
    begin = end = sum(sizes)
    last = len(sizes)
    for index in reversed(range(len(sizes))):
        begin -= sizes[index]
        if end - begin >= least or index == 0:
            buckets.append(Bucket(place=slice(begin, end), parameters=frozenset(range(index, last))))
            end, last = begin, index
    return buckets


class Reduction:
    """Adds up ``sums``, shape (gradients + others,), over all ranks."""

    def __init__(
        self, sums: torch.Tensor, parameters: Sequence[nn.Parameter], *, ranks: Collective, gc_type: str = "none"
    ) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        self._sums = sums
        self._gradients, self._others = torch.split(sums, [sum(sizes), sums.numel() - sum(sizes)])
        self._ranks = ranks
        self._gc_type = gc_type
        self._beside = Beside(sums.device)
        buckets = cut(sizes, least=BUCKET_BYTES // sums.element_size()) if ranks.overlaps else []
        self._buckets = buckets if len(buckets) > 1 else []
        self._sent = 0
        self._missing: list[set[int]] | None = None
        """Of each bucket, while the step's last backward pass runs."""
        for number, bucket in enumerate(self._buckets):
            for index in bucket.parameters:
                ready = partial(self._ready, number, index)
                parameters[index].register_post_accumulate_grad_hook(ready)  # type: ignore[no-untyped-call]  # torch's

    def expect_last(self) -> None:
        """The backward pass that comes now is this rank's last of the step: what is ready may go."""
        self._missing = [set(bucket.parameters) for bucket in self._buckets]

    def finish(self) -> None:
        """Add up whatever has not been; what this thread asks the device for from now on sees the sums."""
        self._missing = None
        if not self._buckets and self._gc_type == "none":
            self._ranks.all_reduce(self._sums)
            return
        while self._sent < len(self._buckets):
            self._send()
        self._sent = 0
        self._beside.join()
        if not self._buckets:
            self._ranks.all_reduce(self._gradients, gc_type=self._gc_type)
        self._ranks.all_reduce(self._others)

    def _ready(self, number: int, index: int, _: torch.Tensor) -> None:
        """Note a gradient; it is in the vector."""
        if self._missing is None:
            return  # That of an earlier batch of the same step: more will be added to it.
        if index not in self._missing[number]:
            raise TrainerError(
                "a weight's gradient comes twice in a backward pass, as with torch.utils.checkpoint's use_reentrant, "
                "which between GPUs must be False"
            )
        self._missing[number].remove(index)
        while self._sent < len(self._buckets) and not self._missing[self._sent]:
            self._send()

    def _send(self) -> None:
        bucket = self._buckets[self._sent]
        self._sent += 1
        with self._beside.behind(mark(self._sums.device)):
            self._ranks.all_reduce(self._gradients[bucket.place], gc_type=self._gc_type)
