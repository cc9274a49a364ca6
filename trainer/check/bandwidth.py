"""Measure the bus bandwidth of an all-reduce among a group of ranks."""

import time
from dataclasses import dataclass
from statistics import median
from typing import Final

import torch
import torch.distributed
from torch.distributed import ProcessGroup

MIN_BYTES: Final = 1 << 18
MAX_BYTES: Final = {"cuda": 1 << 30, "cpu": 1 << 26}
"""Size of the largest message, by type of device; GPUs reach their full rate with hundreds of megabytes."""
GROWTH: Final = 4
"""Ratio of the sizes of two successive messages."""
ENOUGH_S: Final = 0.1
"""Duration from which a message is large enough, in seconds."""
MEASURED_S: Final = 0.5
"""Seconds to measure with the chosen size."""
REPEATS: Final = (3, 20)
"""Smallest and largest number of measurements."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """An all-reduce's size, duration and number of ranks."""

    size: int
    """Bytes of each rank's message."""
    seconds: float
    num_ranks: int

    @property
    def gb_per_s(self) -> float:
        """Return the bus bandwidth ("busbw" of nccl-tests) in GB/s (10^9 bytes).

        Each rank sends and receives 2 (n - 1) / n of the message, so that the result does not depend on the number of
        ranks ("Performance reported by NCCL tests", AllReduce: NVIDIA/nccl-tests doc/PERFORMANCE.md).
        """
        return self.size / self.seconds * 2 * (self.num_ranks - 1) / self.num_ranks / 1e9


def measure(group: ProcessGroup, device: torch.device) -> Measurement:
    """Measure with messages that grow until one takes ENOUGH_S; every rank of the group must call this."""
    size, largest = MIN_BYTES, MAX_BYTES[device.type]
    _all_reduce_s(torch.zeros(1, device=device), group)  # connects the ranks
    while True:
        data = torch.zeros(size // 4, device=device)
        seconds = _slowest(_all_reduce_s(data, group), group, device)
        if seconds >= ENOUGH_S or size >= largest:
            break
        size *= GROWTH
    minimum, maximum = REPEATS
    repeats = max(minimum, min(maximum, int(MEASURED_S / seconds)))
    typical = median(_all_reduce_s(data, group) for _ in range(repeats))
    num_ranks = torch.distributed.get_world_size(group)
    return Measurement(size=size, seconds=_slowest(typical, group, device), num_ranks=num_ranks)


def _all_reduce_s(data: torch.Tensor, group: ProcessGroup) -> float:
    """Return the duration of one all-reduce in seconds."""
    _wait_for_device(data.device)
    began = time.perf_counter()
    torch.distributed.all_reduce(data, group=group)
    _wait_for_device(data.device)
    return time.perf_counter() - began


def _slowest(seconds: float, group: ProcessGroup, device: torch.device) -> float:
    """Return the largest value of all ranks, so that all decide alike."""
    shared = torch.tensor([seconds], device=device)
    torch.distributed.all_reduce(shared, op=torch.distributed.ReduceOp.MAX, group=group)
    return float(shared.item())


def _wait_for_device(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
