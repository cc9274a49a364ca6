"""How long a rank waits for the others, whatever the engine."""

from typing import Final

from trainer.config import TrainConfig
from trainer.s3 import COPY_S, LIST_S, SCHEME

MEETING_S: Final = 600.0
"""At the start: a new machine reads the engine from its image for the first time, block by block
("Initialize Amazon EBS volumes"), and not all are equally quick."""
FETCH_S: Final = 3600.0
"""For a data set in S3, which other machines may have already: 150 GB, ImageNet's size, at 350 Mbit/s."""
RANKS_S: Final = 300.0
"""In a collective operation, from the first step's on: one of them may read its validation set from a cold disk. A rank
that is gone is noticed by its connections, a node that is silent by the launcher, in 20 s: only one that hangs takes so
long."""
WRITE_S: Final = 1800.0
"""For a checkpoint on its way to a disk, or a shared one: 10 GB at 50 Mbit/s."""
PAUSE_S: Final = WRITE_S + RANKS_S
"""For a rank that keeps a checkpoint while the one before is still being written."""


def meeting_s(config: TrainConfig) -> float:
    """Return how long the ranks wait for each other at the start, in seconds.

    One machine may have to fetch what another has: a data set, rank 0's checkpoint.
    """
    data = FETCH_S if config.data_dir.startswith(SCHEME) else 0.0
    checkpoint = LIST_S + COPY_S if config.s3_folder is not None else 0.0
    return MEETING_S + data + checkpoint


def end_s(config: TrainConfig) -> float:
    """Return how long the ranks wait at the end for rank 0, in seconds.

    It writes a checkpoint that may have been under way, and the training's last one. Where they go to S3, a copy may be
    under way too, and those of the best and of the last one follow.
    """
    copies = LIST_S + 3 * COPY_S if config.s3_folder is not None else 0.0
    return 2 * WRITE_S + copies + RANKS_S
