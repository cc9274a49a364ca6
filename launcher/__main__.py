"""Makes ``python3 /opt/deeplearning/current/launcher`` work, which is what ``launch`` runs."""

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).parent.parent))

from launcher.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
