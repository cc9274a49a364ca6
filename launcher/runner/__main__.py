"""The runner's program, ``python3 /opt/deeplearning/current/launcher/runner/__main__.py``; the launcher speaks to it.

It says that it is ready, reads one line of JSON (launcher.job.spec.NodeSpec) from its standard
input, runs the ranks, and writes frames. When its standard input closes, the ranks end. After
a job that asks for it, it waits a while for a further one.
"""

import gc
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))


def start() -> int:
    """Import the runner and run it; the less it imports, the sooner every node of every job starts."""
    # There is no garbage to look for yet.
    gc.disable()
    from launcher.runner.idle import login_fingerprint, say_idle
    from launcher.runner.main import main
    from launcher.runner.reaper import run_under_reaper

    at_login = login_fingerprint()
    # What the guard's child will never change it need not copy.
    gc.freeze()
    gc.enable()
    return run_under_reaper(lambda is_further: main(at_login, is_further=is_further), say_idle)


if __name__ == "__main__":
    # Nothing is left to be done, and Python would take a while to notice.
    os._exit(start())
