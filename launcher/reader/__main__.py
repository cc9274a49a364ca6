"""Makes ``python3 /opt/deeplearning/current/launcher/reader [-f] JOB LOG...`` work; ``launch logs`` runs it."""

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from launcher.reader.reader import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
