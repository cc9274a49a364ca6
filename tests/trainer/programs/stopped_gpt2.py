"""Run examples/gpt2.py, and send a rank a signal in the middle of its work, however fast or slow the machine is.

The variable ``STOPPED`` states when, as ``RANK STEP SIGNAL``: after that step has changed the weights. At the end of
the run, check that the model is freed before its process group.
"""

import os
import runpy
import signal
from itertools import count
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.trainer.programs.freed_ddp import checking_order

SCRIPT = Path(__file__).parents[3] / "examples/gpt2.py"
VARIABLE = "STOPPED"


def stop_in_time() -> None:
    rank, step, name = os.environ[VARIABLE].split()
    steps = count(1)

    def stop(*_: object) -> None:
        if os.environ["RANK"] == rank and next(steps) == int(step):
            os.kill(os.getpid(), signal.Signals[name])

    register_optimizer_step_post_hook(stop)


if __name__ == "__main__":
    if VARIABLE in os.environ:
        stop_in_time()
    with checking_order():
        runpy.run_path(str(SCRIPT), run_name="__main__")
