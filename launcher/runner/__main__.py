"""Makes ``python3 /opt/deeplearning/current/launcher/runner`` work; the launcher speaks to it.

It says that it is ready, reads one line of JSON (launcher.frames.NodeSpec) from its standard
input, runs the ranks, and writes frames. When its standard input closes, the ranks end.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from launcher.runner.guard import guarded
from launcher.runner.node import main

if __name__ == "__main__":
    sys.exit(guarded(main))
