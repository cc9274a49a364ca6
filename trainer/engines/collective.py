"""What PyTorch's ranks do together, and how long they wait for each other: gloo between CPUs, NCCL between GPUs.

The sums of every step go around a ring of our own between CPUs (trainer.engines.ring).
"""

from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed
from torch.distributed.distributed_c10d import _set_pg_timeout

from trainer.engines.compression import TYPES, all_reduce_compressed
from trainer.engines.meeting import MEETING_TIMEOUT, RANKS_TIMEOUT, SPARE, report_lost_ranks
from trainer.engines.nodes import Nodes
from trainer.engines.ring import Ring
from trainer.engines.streams import mark, wait_for


class Collective:
    """The ranks of a training, which have met; with only one there is nothing to do.

    Every call raises TrainerError when a rank is lost.
    """

    def __init__(self, *, count: int, ring: Ring | None = None, nodes: Nodes | None = None) -> None:
        """``nodes`` are for numbers that are compressed; without, they go from every rank to every other."""
        self.connected = count > 1
        self._ring = ring
        self._nodes = nodes or Nodes()
        self._timeout = MEETING_TIMEOUT

    @property
    def overlaps(self) -> bool:
        """Whether sums are added up beside what the caller does: not around the ring, which this thread drives."""
        return self.connected and self._ring is None

    @property
    def timeout_s(self) -> float:
        """How long a rank may be silent now."""
        return self._timeout.total_seconds()

    def all_reduce(self, sums: torch.Tensor, *, gc_type: str = "none") -> None:
        """Replace a vector by its sum over all ranks; on the way the numbers are of this type."""
        if not self.connected:
            return
        with report_lost_ranks("adding up over all ranks", timeout=self._timeout):
            if gc_type in TYPES:
                all_reduce_compressed(sums, TYPES[gc_type], nodes=self._nodes)
            elif self._ring is None:
                torch.distributed.all_reduce(sums)
            else:
                self._ring.all_reduce(sums.view(-1).numpy(), timeout_s=self.timeout_s)

    def broadcast(self, tensors: Iterable[torch.Tensor], *, what: str, source: int) -> None:
        """Give all ranks what one has."""
        if not self.connected:
            return
        with report_lost_ranks(f"sending {what} to all ranks", timeout=self._timeout):
            for tensor in tensors:
                torch.distributed.broadcast(tensor, src=source)
                wait_for(mark(tensor.device), timeout_s=self.timeout_s)

    def expect_steps(self, *, compiled: bool) -> None:
        """All ranks have made a step: from now on none has a reason to be slow, unless it compiles them."""
        self.be_patient(MEETING_TIMEOUT if compiled else RANKS_TIMEOUT)

    def be_patient(self, timeout: timedelta) -> None:
        """Let the other ranks be silent for so long from now on."""
        if self.connected and self._timeout != timeout:
            self._timeout = timeout
            # Torch has no public name for it; the groups were made with the timeout of the start.
            for group in (None, *self._nodes.groups):
                _set_pg_timeout(timeout if self._ring is not None else timeout + SPARE, group)

    def close(self) -> None:
        """Leave the other ranks."""
        if self._ring is not None:
            self._ring.close()
        if self.connected:
            torch.distributed.destroy_process_group()
