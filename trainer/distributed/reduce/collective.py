"""Sum and broadcast tensors over all ranks: NCCL between GPUs, gloo between CPUs.

Between CPUs a ring of TCP connections may replace gloo for the sums (trainer.distributed.reduce.ring).
"""

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from trainer.distributed.process_groups import ProcessGroups
from trainer.distributed.reduce.compressed import TYPES, all_reduce_compressed
from trainer.distributed.reduce.ring import Ring
from trainer.distributed.rendezvous import RENDEZVOUS_TIMEOUT, SPARE, STEP_TIMEOUT, report_lost_ranks
from trainer.side_stream import read, record_event, wait_for


class Collective:
    """Communication between the ranks of a run; with a single rank it does nothing.

    Every operation raises TrainerError when a rank is lost.
    """

    def __init__(self, *, count: int, ring: Ring | None = None, groups: ProcessGroups | None = None) -> None:
        """Use ``groups`` for compressed sums; without them every rank sends to every other."""
        self.is_distributed = count > 1
        self._ring = ring
        self._groups = groups or ProcessGroups()
        self._timeout = RENDEZVOUS_TIMEOUT

    @property
    def overlaps(self) -> bool:
        """Return True if sums run beside the caller's own work; the ring's do not: the calling thread drives it."""
        return self.is_distributed and self._ring is None

    @property
    def timeout_s(self) -> float:
        """Seconds that a rank may be silent at present."""
        return self._timeout.total_seconds()

    def all_reduce(self, sums: torch.Tensor, *, compression: str = "none") -> None:
        """Replace a tensor by its sum over all ranks; with a ``compression`` send 16-bit numbers."""
        if not self.is_distributed:
            return
        with report_lost_ranks("the all-reduce", timeout=self._timeout):
            if compression in TYPES:
                all_reduce_compressed(sums, TYPES[compression], groups=self._groups)
            elif self._ring is None:
                torch.distributed.all_reduce(sums)
            else:
                self._ring.all_reduce(sums.view(-1).numpy(), timeout_s=self.timeout_s)

    def largest(self, value: float, *, device: torch.device) -> float:
        """Return the largest of all ranks' values; they may be infinite but not negative."""
        if not self.is_distributed:
            return value
        values = torch.zeros(torch.distributed.get_world_size(), dtype=torch.float64, device=device)
        values[torch.distributed.get_rank()] = value
        self.all_reduce(values)
        return float(read(values, timeout_s=self.timeout_s).max())

    def broadcast(self, tensors: Iterable[torch.Tensor], *, what: str, source: int) -> None:
        """Replace the tensors of all ranks by those of the rank ``source``."""
        if not self.is_distributed:
            return
        with report_lost_ranks(f"sending {what} to all ranks", timeout=self._timeout):
            for tensor in tensors:
                torch.distributed.broadcast(tensor, src=source)
                wait_for(record_event(tensor.device), timeout_s=self.timeout_s)

    def broadcast_object(self, value: Any, *, source: int, is_source: bool, device: torch.device) -> Any:
        """Return the value of the rank ``source`` on every rank; JSON must be able to represent it.

        Like torch.distributed.broadcast_object_list, but with a timeout when a rank is lost.
        """
        if not self.is_distributed:
            return value
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
        size = torch.tensor([content.numel()], device=device)
        self.broadcast([size], what="the size of a message", source=source)
        if not is_source:
            content = content.new_empty(int(size))
        self.broadcast([content], what="a message", source=source)
        return json.loads(bytes(content.tolist()))

    def use_step_timeout(self, *, compiled: bool) -> None:
        """Switch to the step timeout after the first step; a rank that compiles may still take longer."""
        self.set_timeout(RENDEZVOUS_TIMEOUT if compiled else STEP_TIMEOUT)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout for silent ranks."""
        if self.is_distributed and self._timeout != timeout:
            self._timeout = timeout
            # The groups were created with the rendezvous timeout.
            for group in (torch.distributed.group.WORLD, *self._groups.subgroups):
                if group is not None:
                    group.set_timeout(timeout if self._ring is not None else timeout + SPARE)

    def close(self) -> None:
        """Disconnect from the other ranks."""
        if self._ring is not None:
            self._ring.close()
        if self.is_distributed:
            torch.distributed.destroy_process_group()
