"""Run the runner: ``python3 /opt/deeplearning/current/launcher/runner/__main__.py``. Only the launcher starts it.

It reports ready, reads one line of JSON (launcher.spec.NodeSpec) from its standard input, runs the ranks, and writes
frames. When its standard input closes, it ends the ranks. If the job requests it, the runner then waits for another
job.
"""

import gc
import os
import sys

if not __package__:
    sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))


def start() -> int:
    """Import and run the runner; it imports little, because imports delay every node of every job."""
    # Delay garbage collection: imports produce no garbage.
    gc.disable()
    from launcher.runner.between_jobs import report_idle, session_fingerprint
    from launcher.runner.main import main
    from launcher.runner.process.reaper import run_under_reaper

    at_login = session_fingerprint()
    # Exclude existing objects from collections, which would copy their pages in the child.
    gc.freeze()
    gc.enable()
    return run_under_reaper(lambda is_reused: main(at_login, is_reused=is_reused), report_idle)


if __name__ == "__main__":
    # Skip the interpreter's slow shutdown.
    os._exit(start())
