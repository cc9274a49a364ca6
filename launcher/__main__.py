"""Run ``launch``: ``python3 /opt/deeplearning/current/launcher/__main__.py``."""

import gc
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120  (pathlib is slow to import)

INTERRUPTED = 130
"""128 + SIGINT; importing signal takes a while, which may be interrupted too."""


def start() -> int:
    """Import the launcher and run it."""
    # There is no garbage to collect yet.
    gc.disable()
    from launcher.main import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    try:
        code = start()
    except KeyboardInterrupt:  # before there was anything to end
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Nothing is left to do, and an ordinary exit would take a while.
    os._exit(code)
