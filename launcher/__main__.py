"""Run ``launch``: ``python3 /opt/deeplearning/current/launcher/__main__.py``."""

import gc
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120  (pathlib is slow to import)

INTERRUPTED = 130
"""128 + SIGINT; importing signal is slow, and Ctrl-C may arrive meanwhile."""


def start() -> int:
    """Import the launcher and run it."""
    # Collect garbage later: an import creates none.
    gc.disable()
    from launcher.main import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    try:
        code = start()
    except KeyboardInterrupt:  # before anything had started
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Skip the interpreter's shutdown, which takes a while.
    os._exit(code)
