"""Run ``launch``: ``python3 /opt/deeplearning/current/launcher/__main__.py``."""

import gc
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120  (pathlib is slow to import)

INTERRUPTED = 130
"""128 + SIGINT, spelled out: importing signal is slow, and Ctrl-C may arrive before it is done."""


def start() -> int:
    """Import the launcher and run it."""
    # Delay garbage collection: imports produce no garbage.
    gc.disable()
    from launcher.main import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    try:
        code = start()
    except KeyboardInterrupt:  # before the job started
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Skip the interpreter's slow shutdown.
    os._exit(code)
