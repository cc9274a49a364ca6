"""The trainer, which ends with 3 where a rank has loaded torch's compiler: over a second of a core at a start."""

import os
import sys

from trainer.train import main

COMPILER = "torch._dynamo"

if __name__ == "__main__":
    code = main()
    print(*sorted(name for name in sys.modules if name == COMPILER), file=sys.stderr, flush=True)
    os._exit(code or 3 * (COMPILER in sys.modules))
