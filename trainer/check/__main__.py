"""Run the check: ``launch python /opt/deeplearning/trainer/check``."""

import importlib.util
import os
import sys
from pathlib import Path

if not __package__:
    # When run as a directory, Python puts the directory itself first on the path; put the parent of `trainer` there.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

if __name__ == "__main__":
    from trainer.check.node_devices import read_devices

    for name in ("torch", "numpy"):
        if importlib.util.find_spec(name) is None:
            sys.exit(
                f"check: {read_devices(Path('/')).name} has no {name} in its Python environment ({sys.executable})"
            )

    from trainer.check.program import main

    code = main(sys.argv[1:])
    sys.stdout.flush()
    # torch's threads may still use the groups, and would abort the process if Python destroyed these.
    os._exit(code)
