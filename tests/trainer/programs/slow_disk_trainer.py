"""Run the trainer with a short timeout, and with a disk that blocks rank 1 until the file ``go`` exists."""

import os
import time
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

from trainer.checkpoint.format import Checkpoint, save_checkpoint
from trainer.train import main_and_exit

POLL_S = 0.02


def write_slowly(path: Path, checkpoint: Checkpoint) -> None:
    while os.environ["RANK"] == "1" and not Path("go").exists():
        time.sleep(POLL_S)
    save_checkpoint(path, checkpoint)


if __name__ == "__main__":
    with (
        patch("trainer.distributed.reduce.reducers.STEP_TIMEOUT", timedelta(seconds=float(os.environ["PATIENCE_S"]))),
        patch("trainer.checkpoint.store.WARN_S", 0.1),
        patch("trainer.checkpoint.store.save_checkpoint", write_slowly),
    ):
        main_and_exit()
