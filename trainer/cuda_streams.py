"""Queue GPU work on CUDA streams, also beside the training stream, and wait for work with a timeout.

On a CPU every operation is complete when its call returns.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch

from trainer.errors import TrainerError

# torch's events and streams have no type hints, hence the ignores below.
POLL_S: Final = 0.0002


def select_device(device: torch.device) -> None:
    """Select this GPU in the calling thread; call it first in every thread that queues work.

    A new thread starts with GPU 0: each process would create a context there, which takes half a GB of its memory.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def record_event(device: torch.device) -> torch.cuda.Event | None:
    """Return an event that completes after everything this thread has queued on its stream; None on a CPU."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # see above
    event.record(torch.cuda.current_stream(device))
    return event


def wait_for(event: torch.cuda.Event | None, *, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Wait for the event. Raises TrainerError after ``timeout_s``: another rank is probably lost."""
    deadline = clock() + timeout_s
    # Do not use synchronize(): NCCL's operations wait for lost ranks without a limit.
    while event is not None and not event.query():  # type: ignore[no-untyped-call]  # see above
        if clock() >= deadline:
            raise TrainerError(f"the GPU has not finished its work within {timeout_s:.0f} s, another rank may be lost")
        time.sleep(POLL_S)


def start_copy_to_host(values: torch.Tensor) -> torch.Tensor:
    """Queue a copy to the host and return it; it is complete when the device's stream has reached this point."""
    if values.device.type != "cuda":
        return values.clone()
    try:
        host = torch.empty_like(values, device="cpu", pin_memory=True)
    except RuntimeError:
        # A machine may have less pinnable memory than its GPUs have memory; without pinning, the copy is slower.
        host = torch.empty_like(values, device="cpu")
    return host.copy_(values, non_blocking=True)


def copy_to_host(values: torch.Tensor, *, timeout_s: float) -> torch.Tensor:
    """Copy to the host, and wait for it. Raises TrainerError if the device does not complete it in time."""
    copied = start_copy_to_host(values)
    wait_for(record_event(values.device), timeout_s=timeout_s)
    return copied


class SideStream:
    """A stream beside the training stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]  # see above

    @contextmanager
    def after(self, event: torch.cuda.Event | None) -> Iterator[None]:
        """Queue the work of this block on the side stream, to run after the event."""
        if self._stream is None or event is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(event)
            yield

    def join(self) -> None:
        """Make the training stream wait for the side stream before its next operation."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
