"""Run the trainer: ``python -m trainer`` or ``python path/to/trainer``."""

import importlib.util
import sys
from pathlib import Path

if not __package__:
    # When run as a directory, Python puts the directory itself first on the path, where `import trainer` finds nothing.
    # Put its parent there instead.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

if __name__ == "__main__":
    from trainer.signals import block_signals

    # Block signals before numpy starts its threads: the kernel delivers a signal to any thread that does not block it.
    block_signals()
    if importlib.util.find_spec("numpy") is None:
        sys.exit(f"trainer: this Python ({sys.executable}) has no numpy, the image's is /opt/pytorch/bin/python")

    from trainer.train import main_and_exit

    main_and_exit()
