"""Run the GPU tests: ``make test-gpu``, or ``python -m tests.gpu`` with any Python that has torch and numpy.

Needs neither a cluster nor the project's environment, nor pytest. Exits with 1 if there is no GPU.
"""

import importlib.util
import sys
import unittest
from pathlib import Path

SINGLE_PROCESS = "check_one_gpu.py"
TOGETHER = "check_gpus.py"


def main() -> int:
    """Run the checks that this machine's GPUs allow; return the exit status."""
    if importlib.util.find_spec("torch") is None:
        print(f"error: no torch in {sys.executable}, name another: make test-gpu PYTHON=...", file=sys.stderr)
        return 1
    import torch

    count = torch.cuda.device_count()
    if not count:
        print(f"error: no GPU on this machine that torch {torch.__version__} can use", file=sys.stderr)
        return 1
    print(f"{count} x {torch.cuda.get_device_name()}, torch {torch.__version__}", file=sys.stderr)
    if count == 1:
        print("one GPU: nothing between GPUs (NCCL) is checked", file=sys.stderr)
    folder = Path(__file__).parent
    suite = unittest.TestSuite(
        unittest.TestLoader().discover(str(folder), pattern, top_level_dir=str(folder.parents[1]))
        for pattern in ((SINGLE_PROCESS,) if count == 1 else (SINGLE_PROCESS, TOGETHER))
    )
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
