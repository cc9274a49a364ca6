"""Run the runner: ``python3 /opt/deeplearning/current/launcher/runner/__main__.py``. Only the launcher starts it.

It reports that it is ready, reads one line of JSON (launcher.spec.NodeSpec) from its standard input, runs the
ranks, and writes frames. When its standard input closes, the ranks end. After a job that asks for it, the runner
waits for another job.
"""

import gc
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))


def start() -> int:
    """Import the runner and run it; the less it imports, the sooner every node of every job starts."""
    # There is no garbage to collect yet.
    gc.disable()
    from launcher.runner.idle import report_idle, session_fingerprint
    from launcher.runner.main import main
    from launcher.runner.process.reaper import run_under_reaper

    at_login = session_fingerprint()
    # The child need not copy what it never changes.
    gc.freeze()
    gc.enable()
    return run_under_reaper(lambda is_reused: main(at_login, is_reused=is_reused), report_idle)


if __name__ == "__main__":
    # Nothing is left to do, and an ordinary exit would take a while.
    os._exit(start())
