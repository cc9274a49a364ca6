"""Connect PyTorch's ranks, and report a lost rank in one line."""

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import torch
import torch.distributed

from trainer.distributed.world import World
from trainer.errors import TrainerError, shorten_torch_message
from trainer.timeouts import RENDEZVOUS_TIMEOUT_S, STEP_TIMEOUT_S

log = logging.getLogger(__name__)

RENDEZVOUS_TIMEOUT: Final = timedelta(seconds=RENDEZVOUS_TIMEOUT_S)
STEP_TIMEOUT: Final = timedelta(seconds=STEP_TIMEOUT_S)
LISTENER_POLL_S: Final = 0.1
TIMEOUT_MARGIN: Final = timedelta(seconds=30)
"""Time added to NCCL's timeout, which ends the process, so that DeferredResults first raises an error with the
reason."""


def join_ranks(device: torch.device, *, world: World, timeout: timedelta) -> None:
    """Create the process group of all ranks; the rendezvous is MASTER_ADDR:MASTER_PORT."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    address = f"{host}:{port}"
    log.info("waiting for %d ranks at %s, at most %.0f s", world.world_size, address, timeout.total_seconds())
    if world.rank > 0:
        wait_for_listener(host, port, timeout=timeout)
    with report_lost_ranks(f"rendezvous of {world.world_size} ranks at {address}", timeout=timeout):
        torch.distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method="env://",
            rank=world.rank,
            world_size=world.world_size,
            timeout=timeout,
            device_id=device if device.type == "cuda" else None,
        )


def wait_for_listener(host: str, port: int, *, timeout: timedelta) -> None:
    """Wait until rank 0 listens. Torch's own check waits twice the timeout and prints a stack trace."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        try:
            socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                seconds = timeout.total_seconds()
                raise TrainerError(f"rank 0 does not answer at {host}:{port} for {seconds:.0f} s: {error}") from error
            time.sleep(LISTENER_POLL_S)
        else:
            return


@contextmanager
def report_lost_ranks(action: str, *, timeout: timedelta) -> Iterator[None]:
    """Turn the error of a failed connection, torch's or the system's, into a TrainerError of one line."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        seconds = timeout.total_seconds()
        raise TrainerError(
            f"{action} failed: another rank ended, or was silent for {seconds:.0f} s: "
            f"{shorten_torch_message(str(error))}"
        ) from error
