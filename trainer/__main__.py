"""Makes ``python -m trainer`` and ``python path/to/trainer`` the same program."""

import importlib.util
import sys
from pathlib import Path

if not __package__:
    # Started as a directory: Python put the directory itself first on the path, where our
    # modules would hide others of the same name. Its parent is what holds the package.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

if __name__ == "__main__":
    from trainer.signals import hold

    # Numpy starts threads when it is loaded; the kernel gives a signal to whichever does not block it.
    hold()
    if importlib.util.find_spec("numpy") is None:
        sys.exit(f"trainer: this Python ({sys.executable}) has no numpy, the image's is /opt/pytorch/bin/python")

    from trainer.main import main_and_leave

    main_and_leave()
