"""Copies of a training's state for checkpoints, made while the next step computes its gradients."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trainer.engines import State, Weights
from trainer.errors import TrainerError

COPY_S: Final = 60.0
"""Longest wait for a copy in memory."""


class Snapshots:
    """Says when the state must not change, as it is being copied in another thread."""

    def __init__(self) -> None:
        self._copied = threading.Event()
        self._copied.set()

    def begin(self, copy: Callable[[], State], *, changing: Weights) -> Callable[[], State]:
        """Return what copies the state of this moment; ``changing`` are those values that the forward pass changes."""
        copied = self._copied = threading.Event()

        def take() -> State:
            try:
                state = copy()
            finally:
                copied.set()
            return replace(state, weights={name: changing.get(name, value) for name, value in state.weights.items()})

        return take

    def wait(self) -> None:
        """Return when the last copy has been made. Raises TrainerError when it is not within a minute."""
        if not self._copied.wait(COPY_S):
            raise TrainerError(f"the weights could not be copied for a checkpoint within {COPY_S:.0f} s")
