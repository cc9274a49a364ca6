"""The trainer with less patience for the other ranks."""

from datetime import timedelta
from unittest.mock import patch

from trainer.main import main_and_leave

if __name__ == "__main__":
    with patch("trainer.engines.collective.RANKS_TIMEOUT", timedelta(seconds=2)):
        main_and_leave()
