"""Define how long a rank waits for the others, for every framework."""

from typing import Final

from trainer.config.settings import TrainConfig
from trainer.s3 import LIST_TIMEOUT_S, SCHEME, TRANSFER_TIMEOUT_S

RENDEZVOUS_TIMEOUT_S: Final = 600.0
"""Longest wait at the start, in seconds. A new machine loads the libraries from its image block by block ("Initialize
Amazon EBS volumes"), and machines differ in speed."""
DOWNLOAD_TIMEOUT_S: Final = 3600.0
"""Seconds to download a dataset that other machines may already have: 150 GB, ImageNet's size, at 350 Mbit/s."""
STEP_TIMEOUT_S: Final = 300.0
"""Longest wait in a collective operation after the first step, in seconds: a rank may read its validation set from a
cold disk. Only a hung rank takes this long: closed connections reveal a dead rank immediately, and the launcher detects
a silent node in 20 s."""
WRITE_TIMEOUT_S: Final = 1800.0
"""Seconds to write a checkpoint to a local or shared disk: 10 GB at 50 Mbit/s."""
CHECKPOINT_STALL_TIMEOUT_S: Final = WRITE_TIMEOUT_S + STEP_TIMEOUT_S
"""Seconds for which a rank may stall when it saves a checkpoint before the previous one is written."""


def rendezvous_timeout_s(config: TrainConfig) -> float:
    """Return how long the ranks wait for each other at the start, in seconds.

    One machine may have to download what another already has: a dataset, or rank 0's checkpoint.
    """
    data = DOWNLOAD_TIMEOUT_S if config.data_dir.startswith(SCHEME) else 0.0
    checkpoint = LIST_TIMEOUT_S + TRANSFER_TIMEOUT_S if config.s3_folder is not None else 0.0
    return RENDEZVOUS_TIMEOUT_S + data + checkpoint


def shutdown_timeout_s(config: TrainConfig) -> float:
    """Return how long the ranks wait for rank 0 at the end, in seconds.

    Rank 0 finishes a checkpoint that is being written and writes the final one. With S3 it also finishes a running
    upload, and uploads the best and the final checkpoint.
    """
    copies = LIST_TIMEOUT_S + 3 * TRANSFER_TIMEOUT_S if config.s3_folder is not None else 0.0
    return 2 * WRITE_TIMEOUT_S + copies + STEP_TIMEOUT_S
