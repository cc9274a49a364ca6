"""Run the trainer, and send a rank a signal in the middle of its work, however fast or slow the machine is.

The variable ``STOPPED`` states when, as ``RANK STEP SIGNAL``: after that step's gradients are summed, before the
weights change. After SIGTERM, the rank continues only when the trainer has noticed it.
"""

import logging
import os
import signal
import threading
from itertools import count
from unittest.mock import patch

from trainer.torch_backend.backend import TorchBackend
from trainer.train import main_and_exit

VARIABLE = "STOPPED"
NOTICE_LIMIT_S = 60


def send_sigterm() -> None:
    """Send this process SIGTERM, and wait until the trainer has noticed it."""
    noticed = threading.Event()

    class Notice(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            noticed.set()

    handler = Notice()
    logger = logging.getLogger("trainer.signals")
    logger.addHandler(handler)
    os.kill(os.getpid(), signal.SIGTERM)
    assert noticed.wait(NOTICE_LIMIT_S), f"waited {NOTICE_LIMIT_S} s for the trainer to notice SIGTERM"
    logger.removeHandler(handler)


class StoppedBackend(TorchBackend):
    """Sends this rank its signal."""

    steps = count(1)

    def optimizer_step(self, *, num_samples: int) -> None:
        rank, step, name = os.environ[VARIABLE].split()
        if os.environ["RANK"] == rank and next(StoppedBackend.steps) == int(step):
            if name == signal.SIGTERM.name:
                send_sigterm()
            else:
                os.kill(os.getpid(), signal.Signals[name])
        super().optimizer_step(num_samples=num_samples)


def main() -> None:
    with patch("trainer.torch_backend.create_backend.TorchBackend", StoppedBackend):
        main_and_exit()


if __name__ == "__main__":
    main()
