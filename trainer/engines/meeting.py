"""How PyTorch's ranks find each other, and what is said when one is lost."""

import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import torch
import torch.distributed

from trainer.engines.patience import MEETING_S, RANKS_S
from trainer.engines.ring import Address, Ring, join_ring
from trainer.errors import TrainerError
from trainer.ranks import Ranks

log = logging.getLogger(__name__)

MEETING_TIMEOUT: Final = timedelta(seconds=MEETING_S)
RANKS_TIMEOUT: Final = timedelta(seconds=RANKS_S)
LISTENER_POLL_S: Final = 0.1
SPARE: Final = timedelta(seconds=30)
"""NCCL, which ends the process when its time is up, has so much more than Figures, which says why."""


def join(device: torch.device, *, ranks: Ranks, timeout: timedelta) -> None:
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    address = f"{host}:{port}"
    log.info("waiting for %d ranks at %s, at most %.0f s", ranks.world_size, address, timeout.total_seconds())
    if ranks.rank > 0:
        wait_for_listener(host, port, timeout=timeout)
    with report_lost_ranks(f"meeting {ranks.world_size} ranks at {address}", timeout=timeout):
        torch.distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method="env://",
            rank=ranks.rank,
            world_size=ranks.world_size,
            timeout=timeout,
            device_id=device if device.type == "cuda" else None,
        )


def connect_ring(ranks: Ranks, *, timeout: timedelta) -> Ring:
    """Give this rank its place between its neighbours; the ranks have met."""

    def gather(own: Address) -> list[Address]:
        addresses: list[Address] = [own] * ranks.world_size
        torch.distributed.all_gather_object(addresses, own)
        return addresses

    with report_lost_ranks("connecting the ranks to each other", timeout=timeout):
        return join_ring(ranks=ranks, environment=os.environ, gather=gather, timeout_s=timeout.total_seconds())


def wait_for_listener(host: str, port: int, *, timeout: timedelta) -> None:
    """Wait until rank 0 listens. Torch itself would wait twice the timeout and then print its stack."""
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
    """Turn the error of a failed connection, torch's or the system's, into one line."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        seconds = timeout.total_seconds()
        raise TrainerError(
            f"{action} failed, another rank ended or was not heard from for {seconds:.0f} s: {shorten(str(error))}"
        ) from error


def shorten(message: str) -> str:
    """Return the first sentence of a message of torch's, without the source file it may start with.

    NCCL's has its reason below: "Last error:" and a line.
    """
    without_file = re.sub(r"^(\[\S+:\d+\] |NCCL error in: \S+:\d+, )", "", message.strip())
    first = without_file.partition("\n")[0].partition(". ")[0]
    reason = re.search(r"^Last error:\n(.+)", message, flags=re.MULTILINE)
    return f"{first}: {reason[1]}" if reason else first
