"""Connect ranks that are threads of this process in a ring."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from trainer.distributed.reduce.reducers import Ring
from trainer.distributed.reduce.ring_rendezvous import Address, join_ring
from trainer.distributed.world import World

LOOPBACK = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "lo"}
TIMEOUT_S = 60.0
Result = TypeVar("Result")


def on_all(size: int, act: Callable[[int], Result]) -> list[Result]:
    """Run each rank in a thread."""
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(act, range(size)))


@contextmanager
def joined(size: int, *, before: Callable[[list[Address]], None] = lambda _: None) -> Iterator[list[Ring]]:
    """Connect this many ranks; pass their addresses to ``before`` before any of them connects."""
    addresses: list[Address] = [Address("", 0, b"")] * size
    met = threading.Barrier(size, action=lambda: before(addresses))

    def join_one(rank: int) -> Ring:
        def all_gather(own: Address) -> list[Address]:
            addresses[rank] = own
            met.wait(TIMEOUT_S)
            return addresses

        world = World(rank=rank, world_size=size)
        return join_ring(world=world, environment=LOOPBACK, all_gather=all_gather, timeout_s=TIMEOUT_S)

    rings = on_all(size, join_one)
    try:
        yield rings
    finally:
        for ring in rings:
            ring.close()
