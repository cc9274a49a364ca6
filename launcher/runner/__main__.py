"""The runner's program, ``python3 /opt/deeplearning/current/launcher/runner/__main__.py``; the launcher speaks to it.

It says that it is ready, reads one line of JSON (launcher.frames.NodeSpec) from its standard
input, runs the ranks, and writes frames. When its standard input closes, the ranks end.
"""

import os
import sys

if not __package__:
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))

from launcher.runner.guard import guarded
from launcher.runner.node import main

if __name__ == "__main__":
    # Nothing is left to be done, and Python would take a while to notice.
    os._exit(guarded(main))
