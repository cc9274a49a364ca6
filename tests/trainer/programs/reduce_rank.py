"""Run a rank that sums its vector over all ranks, in 16-bit numbers, and records what it sends.

    reduce_rank.py VECTORS

VECTORS: npz of a float32 matrix for each type, with a row for each rank. Writes rank<RANK>.npz, the sums by type, and
rank<RANK>.json, its operations: the group's ranks and the bytes that it sends for all of them. The rank SILENT stays
silent at the end, while the others sum once more with a timeout of a second.
"""

import json
import os
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed

from tests.trainer.programs.multi_node_trainer import take_place
from trainer.distributed.process_groups import create_process_groups
from trainer.distributed.reduce.reducers import Communicator
from trainer.distributed.reduce.ring_rendezvous import connect_ring
from trainer.distributed.rendezvous import RENDEZVOUS_TIMEOUT, join_ranks
from trainer.distributed.world import World
from trainer.errors import TrainerError

SILENT = "SILENT"
CPU = torch.device("cpu")


class Recorded:
    """An operation of torch.distributed; its second argument is the rank's input."""

    def __init__(self, name: str, operations: list[tuple[str, list[int], int]]) -> None:
        self._name = name
        self._call = getattr(torch.distributed, name)
        self._operations = operations

    def __call__(self, received: torch.Tensor, sent: torch.Tensor, *, group: Any = None) -> None:
        members = torch.distributed.get_process_group_ranks(group)
        self._operations.append((self._name, members, sent.nbytes))
        self._call(received, sent, group=group)


def main(vectors: str) -> None:
    take_place()
    world = World.from_environment(os.environ)
    join_ranks(CPU, world=world, timeout=RENDEZVOUS_TIMEOUT)
    groups = create_process_groups(world, device=CPU, timeout=RENDEZVOUS_TIMEOUT)
    ring = connect_ring(world, timeout=RENDEZVOUS_TIMEOUT)
    communicator = Communicator(world_size=world.world_size, ring=ring, groups=groups)
    operations: list[tuple[str, list[int], int]] = []
    sums: dict[str, torch.Tensor] = {}
    with (
        patch("torch.distributed.all_to_all_single", Recorded("all_to_all_single", operations)),
        patch("torch.distributed.all_gather_into_tensor", Recorded("all_gather_into_tensor", operations)),
    ):
        for compression, rows in np.load(vectors).items():
            sums[compression] = torch.from_numpy(rows[world.rank].copy())
            communicator.all_reduce(sums[compression], compression=compression)
    found: dict[str, Any] = {name: vector.numpy() for name, vector in sums.items()}
    np.savez(f"rank{world.rank}.npz", **found)
    Path(f"rank{world.rank}.json").write_text(json.dumps(operations))
    if SILENT in os.environ:
        if os.environ[SILENT] == str(world.rank):
            threading.Event().wait()
        communicator.set_timeout(timedelta(seconds=1))
        communicator.all_reduce(torch.zeros(1000), compression="fp16")
    communicator.close()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except TrainerError as error:
        print(error, file=sys.stderr, flush=True)
        # Exit like the trainer, because torch's groups would wait for the lost rank.
        os._exit(1)
