"""Run the trainer, and exit with 3 if it loaded torch's compiler, which takes over a second of a core."""

import os
import sys

from trainer.train import main

COMPILER = "torch._dynamo"

if __name__ == "__main__":
    code = main()
    print(*sorted(name for name in sys.modules if name == COMPILER), file=sys.stderr, flush=True)
    os._exit(code or 3 * (COMPILER in sys.modules))
