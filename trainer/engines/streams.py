"""Queues of a GPU's work (CUDA streams): what lies beside the training's own, and how long somebody waits for them.

On a CPU there are none: everything is done when it has been asked for.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch

from trainer.errors import TrainerError

# torch gives its events and streams no types: hence what is ignored below.
POLL_S: Final = 0.0002


def mark(device: torch.device) -> torch.cuda.Event | None:
    """Return what comes when the device has done all that this thread has asked its stream for; None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # as said
    event.record(torch.cuda.current_stream(device))
    return event


def wait_for(event: torch.cuda.Event | None, *, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Return when it has come. Raises TrainerError after ``timeout_s``: a rank that the device waits for is gone."""
    deadline = clock() + timeout_s
    # Not synchronize(): NCCL's operations wait for lost ranks without an end.
    while event is not None and not event.query():  # type: ignore[no-untyped-call]  # as said
        if clock() >= deadline:
            raise TrainerError(f"the GPU has not ended its work for {timeout_s:.0f} s, another rank may be lost")
        time.sleep(POLL_S)


def to_host(values: torch.Tensor) -> torch.Tensor:
    """Return a copy in the host's memory, which is there when the device's stream has come so far."""
    if values.device.type != "cuda":
        return values.clone()
    try:
        room = torch.empty_like(values, device="cpu", pin_memory=True)
    except RuntimeError:
        # A machine may have less memory that can be pinned than its GPUs have: then the copy is a slower one.
        room = torch.empty_like(values, device="cpu")
    return room.copy_(values, non_blocking=True)


def read(values: torch.Tensor, *, timeout_s: float) -> torch.Tensor:
    """Return a copy in the host's memory. Raises TrainerError when the device does not come so far in time."""
    copied = to_host(values)
    wait_for(mark(values.device), timeout_s=timeout_s)
    return copied


class Beside:
    """A stream beside the training's own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # as said

    @contextmanager
    def behind(self, moment: torch.cuda.Event | None) -> Iterator[None]:
        """What this thread asks the device for in the block is done in this stream, once ``moment`` has come."""
        if self._stream is None or moment is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(moment)
            yield

    def join(self) -> None:
        """Let what this thread asks its own stream for from now on wait for this one."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
