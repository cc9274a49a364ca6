"""The program behind ``launch``: ``python3 /opt/deeplearning/current/launcher/__main__.py``."""

import gc
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120  (pathlib is slow to import)

INTERRUPTED = 130
"""128 + SIGINT; signal itself takes a while to import, which may be interrupted too."""


def start() -> int:
    """Import the launcher and run it."""
    # There is no garbage to look for yet.
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
    # Nothing is left to be done, and Python would take a while to notice.
    os._exit(code)
