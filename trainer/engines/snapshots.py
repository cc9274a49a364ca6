"""Copies of a training's state for checkpoints, made while the next step computes its gradients.

On a GPU they lie in a stream of their own, behind the update before and beside the step after, and go to pinned memory,
so that neither the processor nor the step waits for them; the next update does, on the GPU.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

import torch

from trainer.engines.streams import Beside, mark, to_host, wait_for
from trainer.errors import TrainerError

COPY_S: Final = 60.0
"""Longest wait for a copy in memory."""

Tensors = Mapping[str, torch.Tensor]


class Snapshots:
    """Says when the state must not change, as it is being copied in another thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._beside = Beside(device)
        self._asked: threading.Event | None = None
        """Set when the device has been asked for the last copy; None when what changes the values knows of it."""

    def begin(self, values: Tensors, *, changing: Collection[str]) -> Callable[[], Tensors]:
        """Return what copies the values of this moment to the host's memory, in whatever thread.

        ``changing`` are the names of those that the forward pass changes; they are small, and copied at once.
        """
        now = {name: value.clone() if name in changing else value for name, value in values.items()}
        moment = mark(self._device)
        asked = self._asked = threading.Event()

        def take() -> Tensors:
            try:
                with self._beside.behind(moment):
                    copies = {name: to_host(value.detach()) for name, value in now.items()}
                    copied = mark(self._device)
            finally:
                asked.set()
            wait_for(copied, timeout_s=COPY_S)
            return copies

        return take

    def wait(self) -> None:
        """Let what changes the values come behind the last copy. Raises TrainerError when none is made in a minute."""
        if self._asked is None:
            return
        if not self._asked.wait(COPY_S):
            raise TrainerError(f"the weights could not be copied for a checkpoint within {COPY_S:.0f} s")
        self._beside.join()
        self._asked = None
