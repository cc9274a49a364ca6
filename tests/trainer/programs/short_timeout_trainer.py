"""Run the trainer with a short timeout for the other ranks."""

from datetime import timedelta
from unittest.mock import patch

from trainer.train import main_and_exit

if __name__ == "__main__":
    with patch("trainer.distributed.reduce.collective.STEP_TIMEOUT", timedelta(seconds=2)):
        main_and_exit()
