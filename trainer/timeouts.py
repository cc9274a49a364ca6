"""Define how long a rank waits for the others, with every backend."""

from typing import Final

from trainer.config.settings import TrainConfig
from trainer.s3 import COPY_S, LIST_S, SCHEME

RENDEZVOUS_S: Final = 600.0
"""Longest wait at the start. A new machine reads the framework from its image for the first time, block by block
("Initialize Amazon EBS volumes"), and machines differ in speed."""
FETCH_S: Final = 3600.0
"""Time to fetch a data set from S3 that other machines may already have: 150 GB, ImageNet's size, at 350 Mbit/s."""
STEP_S: Final = 300.0
"""Longest wait in a collective operation, from the first step on: a rank may read its validation set from a cold disk.
Only a rank that hangs takes this long: closed connections reveal a dead rank at once, the launcher a silent node in
20 s."""
WRITE_S: Final = 1800.0
"""Time to write a checkpoint to a disk, or to a shared one: 10 GB at 50 Mbit/s."""
PAUSE_S: Final = WRITE_S + STEP_S
"""Pause for a rank that saves a checkpoint while the previous one is still being written."""


def rendezvous_s(config: TrainConfig) -> float:
    """Return how long the ranks wait for each other at the start, in seconds.

    One machine may have to fetch what another already has: a data set, rank 0's checkpoint.
    """
    data = FETCH_S if config.data_dir.startswith(SCHEME) else 0.0
    checkpoint = LIST_S + COPY_S if config.s3_folder is not None else 0.0
    return RENDEZVOUS_S + data + checkpoint


def shutdown_timeout_s(config: TrainConfig) -> float:
    """Return how long the ranks wait at the end for rank 0, in seconds.

    Rank 0 finishes a checkpoint that may be under way and writes the final one. With S3 it also finishes a copy under
    way, and copies the best and the final checkpoint.
    """
    copies = LIST_S + 3 * COPY_S if config.s3_folder is not None else 0.0
    return 2 * WRITE_S + copies + STEP_S
