"""Copy a run's state for a checkpoint while the next step computes its gradients, and load it again.

On a GPU the copies run on a side stream and go to pinned memory, after the last update and beside the next step.
Neither the CPU nor the step waits for them; the next update does, on the GPU. A checkpoint has the weights by the
network's names, and the momentum in their order.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from torch import nn

from trainer.backend import TrainingState
from trainer.cuda_streams import SideStream, record_event, select_device, start_copy_to_host, wait_for
from trainer.errors import TrainerError
from trainer.torch_backend.flat_params import flatten, views

MOMENTUM: Final = "momentum"
SCALE: Final = "loss_scale"
"""Names in a checkpoint."""
MOMENTUM_COPY_KEY: Final = "/"
"""Key of the momentum among the copied tensors; no weight has a name with a slash."""
HOST_COPY_TIMEOUT_S: Final = 60.0
"""Longest wait for a copy in memory, in seconds."""

Tensors = Mapping[str, torch.Tensor]


class Snapshots:
    """Copies the state in another thread; wait() returns when the state may change again."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side_stream = SideStream(device)
        self._queued: threading.Event | None = None
        """Set when the last copy is queued on the device; None when no copy is outstanding."""

    def begin(self, values: Tensors, *, changing: Collection[str]) -> Callable[[], Tensors]:
        """Return a function that copies the current values to host memory, in any thread.

        ``changing`` names the values that the forward pass changes; they are small, and copied immediately.
        """
        current = {name: value.clone() if name in changing else value for name, value in values.items()}
        present = record_event(self._device)
        queued = self._queued = threading.Event()

        def take() -> Tensors:
            try:
                select_device(self._device)
                with self._side_stream.after(present):
                    copies = {name: start_copy_to_host(value.detach()) for name, value in current.items()}
                    copied = record_event(self._device)
            finally:
                queued.set()
            wait_for(copied, timeout_s=HOST_COPY_TIMEOUT_S)
            return copies

        return take

    def wait(self) -> None:
        """Wait until the values may change. Raises TrainerError if the copy takes longer than a minute."""
        if self._queued is None:
            return
        if not self._queued.wait(HOST_COPY_TIMEOUT_S):
            raise TrainerError(f"the weights could not be copied for a checkpoint within {HOST_COPY_TIMEOUT_S:.0f} s")
        self._side_stream.join()
        self._queued = None


def pack_state(
    copies: Mapping[str, torch.Tensor],
    parameters: Sequence[nn.Parameter],
    *,
    network_order: Sequence[int],
    channels_last: bool,
    optimizer: Mapping[str, np.ndarray],
) -> TrainingState:
    """Return the state of these host copies; ``optimizer`` contains the rest of the optimizer's state.

    ``network_order`` lists the indices into ``parameters`` in the network's order.
    """
    # Reorder on the host, because a GPU's memory may be full.
    parts = views(copies[MOMENTUM_COPY_KEY], parameters, channels_last=channels_last)
    momentum = flatten([parts[index] for index in network_order])
    weights = {name: value.contiguous().numpy() for name, value in copies.items() if name != MOMENTUM_COPY_KEY}
    return TrainingState(weights=weights, optimizer={MOMENTUM: momentum.numpy(), **optimizer})


def load_weights(model: nn.Module, state: TrainingState) -> None:
    """Load a checkpoint's weights and buffers. Raises TrainerError if they belong to another network."""
    tensors = model.state_dict()
    if {name: value.shape for name, value in tensors.items()} != {n: v.shape for n, v in state.weights.items()}:
        raise TrainerError("the checkpoint is of a network with other weights; to start over, pass --resume never")
    for name, value in state.weights.items():
        tensors[name].copy_(torch.from_numpy(value.copy()))
