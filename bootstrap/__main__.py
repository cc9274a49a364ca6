"""Start the program: ``python3 -m bootstrap`` or, on a node, ``python3 RELEASE/bootstrap``."""

import sys
from pathlib import Path

if not __package__:
    # When run as a directory, Python puts that directory first on the path. Put its parent and the bundled libraries
    # there instead. Resolve the link first, so that a switch of releases cannot mix two of them.
    release = Path(__file__).resolve().parents[1]
    sys.path[0:1] = [str(release), str(release / "vendor")]

if __name__ == "__main__":
    from bootstrap.main import main

    sys.exit(main())
