"""Entry point: ``python3 -m bootstrap`` or, on a node, ``python3 RELEASE/bootstrap``."""

import sys
from pathlib import Path

if not __package__:
    # Run as a directory, so that the directory itself is first on the path: put its parent and
    # the bundled libraries there instead. Resolved, lest a switch of releases mix two of them.
    release = Path(__file__).resolve().parents[1]
    sys.path[0:1] = [str(release), str(release / "vendor")]

if __name__ == "__main__":
    from bootstrap.main import main

    sys.exit(main())
