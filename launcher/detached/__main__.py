"""Run ``python3 /opt/deeplearning/current/launcher/detached REQUEST``, the program of a detached job's unit."""

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from launcher.detached.unit import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
