"""Run the trainer as on several nodes: set the launcher's variables for NODES, the ranks on each node."""

import os

from trainer.train import main_and_exit

NODES = "NODES"
"""Numbers of ranks per node, for example "2,1,1"."""


def take_place() -> None:
    """Set LOCAL_RANK and LOCAL_WORLD_SIZE; ranks are numbered node by node."""
    places = [(place, int(size)) for size in os.environ[NODES].split(",") for place in range(int(size))]
    local_rank, size = places[int(os.environ["RANK"])]
    os.environ.update(LOCAL_RANK=str(local_rank), LOCAL_WORLD_SIZE=str(size))


if __name__ == "__main__":
    take_place()
    main_and_exit()
