"""Two processes a runner, so that no end of one of them leaves anything behind, ``kill -9`` included.

The guard waits for the runner proper, its child; whatever is then left below it is killed. The runner
stops its processes when the guard is gone.
"""

import os
import signal
from collections.abc import Callable

from launcher.runner.processes import adopt_orphans, die_with_parent, end_orphans, exit_code

ORPHANS_DEADLINE_S = 5.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def guarded(work: Callable[[], int]) -> int:
    """Do `work` in a child; returns its result when nothing of it is left."""
    adopt_orphans()
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(signal.SIGTERM)
        # It may have died before this process asked to be told.
        result = work() if os.getppid() == guard else 0
        end_orphans(deadline_s=ORPHANS_DEADLINE_S)
        return result
    for number in STOP_SIGNALS:
        # They are for the child, to which they are sent as well: ssh hangs up on all, and so does pkill.
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    end_orphans(deadline_s=ORPHANS_DEADLINE_S)
    return exit_code(os.waitstatus_to_exitcode(status))
