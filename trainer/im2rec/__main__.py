"""Run the converter: ``python /opt/deeplearning/trainer/im2rec PREFIX FOLDER``."""

import sys
from pathlib import Path

if not __package__:
    # When run as a directory, Python puts the directory itself first on the path; put the parent of `trainer` there.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

if __name__ == "__main__":
    from trainer.im2rec.conversion import main

    sys.exit(main(sys.argv[1:]))
