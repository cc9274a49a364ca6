"""Run the trainer with a short timeout for the other ranks, and stop one of them (see stopped_trainer)."""

from datetime import timedelta
from unittest.mock import patch

from tests.trainer.programs import stopped_trainer

if __name__ == "__main__":
    with patch("trainer.distributed.reduce.reducers.STEP_TIMEOUT", timedelta(seconds=2)):
        stopped_trainer.main()
