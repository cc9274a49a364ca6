"""Sum a step's gradients over all ranks: with DistributedDataParallel between GPUs, around a ring between CPUs.

In this file: Ring, then Communicator, which sums with NCCL between GPUs and with gloo or the ring between CPUs, then
the two default reducers, FlatReducer and DdpReducer. Each sums a step's gradients, and its loss, flags and BatchNorm
statistics. The reducer for other options is in gradient_buckets.py.
"""

import gc
import select
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainer.cuda_streams import copy_to_host
from trainer.distributed.process_groups import ProcessGroups
from trainer.distributed.reduce.compressed import TYPES, all_reduce_compressed
from trainer.distributed.rendezvous import RENDEZVOUS_TIMEOUT, STEP_TIMEOUT, TIMEOUT_MARGIN, report_lost_ranks
from trainer.distributed.world import World
from trainer.errors import TrainerError

Vector = NDArray[Any]
KEEPALIVE_S: Final = 60
DUMMY_BATCH_SIZE: Final = 2
"""Number of images in the backward pass with weight zero: BatchNorm rejects a single one."""


class Ring:
    """Connections of a rank to its two neighbors, over which the calling thread sums arrays.

    The ring all-reduce of Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of
    workstations": each of n ranks sends 2(n-1)/n of the array. gloo has the same algorithm, but its own thread waits
    for the network and spins while another one sends (``Pair::handleEvents`` and its lock, in torch 2.13): on a rank's
    only core this costs LeNet as much time as sending its data (docs/decisions/019; benchmark scaling_lenet). Here one
    thread sends, receives and sleeps.

    The order of the additions is fixed and every sum is computed once, so all ranks get the same bits in every run. All
    ranks must make the same calls in the same order.
    """

    def __init__(self, *, next_: socket.socket, previous: socket.socket, world: World) -> None:
        for connection in (next_, previous):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Firewalls drop silent connections, and these are silent while rank 0 uploads the final checkpoint.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        self._next = next_
        self._previous = previous
        self._rank = world.rank
        self._world_size = world.world_size
        self._buffer = np.empty(0, np.uint8)

    def all_reduce(self, vector: Vector, *, timeout_s: float) -> None:
        """Replace an array by its sum over all ranks.

        Raises ConnectionError when a neighbor has ended, TimeoutError when it was silent for ``timeout_s``.
        """
        rank, world_size, length = self._rank, self._world_size, len(vector)
        parts = [vector[length * part // world_size : length * (part + 1) // world_size] for part in range(world_size)]
        # Reduce-scatter: each part goes around the ring and accumulates its sum.
        for step in range(world_size - 1):
            part = parts[(rank - step - 1) % world_size]
            received = self._buffer_for(part)
            self._exchange(parts[(rank - step) % world_size], received, timeout_s)
            part += received
        # All-gather: each sum goes around the ring to all ranks.
        for step in range(world_size - 1):
            self._exchange(parts[(rank - step + 1) % world_size], parts[(rank - step) % world_size], timeout_s)

    def close(self) -> None:
        """Close both connections."""
        self._next.close()
        self._previous.close()

    def _buffer_for(self, part: Vector) -> Vector:
        if self._buffer.nbytes < part.nbytes:
            self._buffer = np.empty(part.nbytes, np.uint8)
        return self._buffer[: part.nbytes].view(part.dtype)

    def _exchange(self, sent: Vector, received: Vector, timeout_s: float) -> None:
        """Send to the next rank while receiving from the previous one, so that no ranks wait for each other."""
        unsent, missing = _view_bytes(sent), _view_bytes(received)
        while unsent or missing:
            waits = select.poll()
            if unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[self._next.send(unsent) :]
                if unsent:
                    waits.register(self._next, select.POLLOUT)
            if missing:
                with suppress(BlockingIOError):
                    count = self._previous.recv_into(missing)
                    if not count:
                        raise ConnectionResetError("connection closed by the previous rank")
                    missing = missing[count:]
                if missing:
                    waits.register(self._previous, select.POLLIN)
            if (unsent or missing) and not waits.poll(timeout_s * 1000):
                raise TimeoutError("timed out")


class Communicator:
    """Communication between the ranks of a run; with a single rank it does nothing.

    Every operation raises TrainerError when a rank is lost.
    """

    def __init__(self, *, world_size: int, ring: Ring | None = None, groups: ProcessGroups | None = None) -> None:
        """``groups`` are needed only for compressed all-reduces; by default each rank counts as a node."""
        self.is_distributed = world_size > 1
        self._ring = ring
        self._groups = groups or ProcessGroups()
        self.timeout = RENDEZVOUS_TIMEOUT
        """Longest time for which a rank may be silent at present."""

    @property
    def overlaps(self) -> bool:
        """Return True if an all-reduce overlaps with the caller's work.

        The ring's does not, because the calling thread drives it.
        """
        return self.is_distributed and self._ring is None

    @property
    def timeout_s(self) -> float:
        """Seconds that a rank may be silent at present."""
        return self.timeout.total_seconds()

    def all_reduce(self, sums: torch.Tensor, *, compression: str = "none") -> None:
        """Replace a tensor by its sum over all ranks; with a ``compression`` send 16-bit numbers."""
        if not self.is_distributed:
            return
        with report_lost_ranks("the all-reduce", timeout=self.timeout):
            if compression in TYPES:
                all_reduce_compressed(sums, TYPES[compression], groups=self._groups)
            elif self._ring is None:
                torch.distributed.all_reduce(sums)
            else:
                self._ring.all_reduce(sums.view(-1).numpy(), timeout_s=self.timeout_s)

    def all_reduce_max(self, value: float, *, device: torch.device) -> float:
        """Return the largest of all ranks' values; they may be infinite but not negative."""
        if not self.is_distributed:
            return value
        values = torch.zeros(torch.distributed.get_world_size(), dtype=torch.float64, device=device)
        values[torch.distributed.get_rank()] = value
        self.all_reduce(values)
        return float(copy_to_host(values, timeout_s=self.timeout_s).max())

    def use_step_timeout(self, *, compiled: bool) -> None:
        """Switch to the step timeout after the first step; a rank that compiles may still take longer."""
        self.set_timeout(RENDEZVOUS_TIMEOUT if compiled else STEP_TIMEOUT)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout for silent ranks."""
        if self.is_distributed and self.timeout != timeout:
            self.timeout = timeout
            # The groups were created with the rendezvous timeout.
            for group in (torch.distributed.group.WORLD, *self._groups.subgroups):
                if group is not None:
                    group.set_timeout(timeout if self._ring is not None else timeout + TIMEOUT_MARGIN)

    def close(self) -> None:
        """Disconnect from the other ranks; DistributedDataParallel must not be in use any more."""
        if self._ring is not None:
            self._ring.close()
        if self.is_distributed:
            # Free DistributedDataParallel before its group, whose last owner joins gloo's threads while it holds the
            # GIL, which may hang. The first one of a process is in a reference cycle, so only the collector frees it.
            gc.collect()
            torch.distributed.destroy_process_group()


class FlatReducer:
    """Sums a flat tensor, the gradients followed by other values, once the backward pass has ended."""

    def __init__(self, sums: torch.Tensor, *, communicator: Communicator) -> None:
        self._sums = sums
        self._communicator = communicator

    def begin(self) -> None:
        """Zero the sums for a new step."""
        self._sums.zero_()

    @contextmanager
    def backward_pass(self, *, is_last: bool) -> Iterator[None]:
        """Run a backward pass in this block, which adds to the gradients."""
        yield

    def shadow_backward(self, images: torch.Tensor) -> None:
        """Do nothing: the zeros in the sums are this rank's gradients."""

    def finish(self) -> None:
        """Sum the flat tensor over all ranks."""
        self._communicator.all_reduce(self._sums)

    def average(self, *, num_samples: int) -> None:
        """Turn all sums into means over the ``num_samples`` of all ranks."""
        self._sums.div_(num_samples)


class DdpReducer:
    """Sums gradients during the backward pass, and a flat tensor of other values after it (docs/decisions/020).

    Gradients are views of DDP's buckets. DDP broadcasts no buffers, as this class averages BatchNorm's statistics, in
    one small all-reduce with loss and flags. DDP's mean over ranks is rescaled to the mean over samples. A rank without
    samples runs a backward pass with weight zero.
    """

    def __init__(
        self,
        model: nn.Module,
        sums: torch.Tensor,
        parameters: Sequence[nn.Parameter],
        *,
        communicator: Communicator,
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
        self._communicator = communicator

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

    def shadow_backward(self, images: torch.Tensor) -> None:
        """Run forward and backward on zero images with weight zero, and restore the buffers.

        Otherwise the other ranks would wait for this rank's gradients; PyTorch's Join calls this shadowing.
        """
        zeros = images.new_zeros((DUMMY_BATCH_SIZE, *images.shape[1:]))
        before = [buffer.clone() for buffer in self.module.module.buffers()]
        torch.autograd.backward(self.module(zeros).float().sum() * 0)
        for buffer, value in zip(self.module.module.buffers(), before, strict=True):
            buffer.copy_(value)

    def finish(self) -> None:
        """Sum the other values; the last backward pass has summed the gradients."""
        if any(parameter.grad is None for parameter in self._parameters):
            raise TrainerError(
                "a parameter was unused in this step's forward pass, which --reduction ddp does not support: "
                "use --reduction buckets"
            )
        self._communicator.all_reduce(self._sums)

    def average(self, *, num_samples: int) -> None:
        """Turn the gradients' mean over ranks, and the other sums, into means over the ``num_samples`` of all ranks."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        torch._foreach_mul_(gradients, torch.distributed.get_world_size() / num_samples)
        self._sums.div_(num_samples)


def _view_bytes(vector: Vector) -> memoryview:
    return vector.view(np.uint8).data
