"""Two processes a runner, so that no end of one of them leaves anything behind, ``kill -9`` included.

The guard waits for the runner proper, its child; whatever is then left below it is killed. The runner
stops its processes when the guard is gone. For each further job the guard starts a fresh child.
"""

import os
import time
from _collections_abc import Callable  # collections takes long to import

from launcher.runner.fast_imports import signal
from launcher.runner.processes import adopt_orphans, die_with_parent, end_orphans, exit_code, rename

ORPHANS_DEADLINE_S = 5.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
IDLE_NAME, GUARD_NAME = "launch-idle", "launch-guard"
"""By which lists of processes tell what waits for a job, and the guard of such a one, from the part of a job."""
STOPPED_S = 20.0
"""So long a child may be stopped (SIGSTOP): as long as the launcher waits for its signs of life."""
POLL_S = 0.5
LONGEST_S = 3600.0
"""So old a session gets no further job: what allowed the login, a certificate say, may have ended since."""
AGAIN = 75
"""Exit code of a child whose job has ended in order, and who wants a next one (EX_TEMPFAIL of sysexits(3))."""


def run_under_reaper(work: Callable[[bool], int], say_idle: Callable[[], bool]) -> int:
    """Do `work` in a child, and in a further one, which is told so, as long as it ends with AGAIN.

    In between nothing of the last one is left, which `say_idle` tells; it returns whether anybody hears that. Returns
    the last one's result.
    """
    adopt_orphans()
    guard, is_further, since = os.getpid(), False, time.monotonic()
    while True:
        child = os.fork()
        if child == 0:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            die_with_parent(signal.SIGTERM)
            if is_further:
                rename(IDLE_NAME)
            # It may have died before this process asked to be told.
            result = work(is_further) if os.getppid() == guard else 0
            end_orphans(deadline_s=ORPHANS_DEADLINE_S)
            return result
        for number in STOP_SIGNALS:
            # They are for the child, to which they are sent as well: ssh hangs up on all, and so does pkill.
            signal.signal(number, signal.SIG_IGN)
        status = await_end(child)
        is_clean = end_orphans(deadline_s=ORPHANS_DEADLINE_S)
        code = exit_code(os.waitstatus_to_exitcode(status))
        if code != AGAIN or not is_clean or time.monotonic() - since > LONGEST_S:
            return code
        # Who waits for this need not wait for the next child too.
        if not say_idle():
            return code
        is_further = True
        rename(GUARD_NAME)


def await_end(child: int, *, stopped_s: float = STOPPED_S) -> int:
    """Wait for the child, and reap it; returns its status (wait(2)).

    It ends by itself, unless somebody has stopped it: its processes would then run on for ever, so it is killed.
    """
    until: float | None = None
    while True:
        waiting = os.WUNTRACED | os.WCONTINUED | (0 if until is None else os.WNOHANG)
        pid, status = os.waitpid(child, waiting)
        if pid and not (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
            return status
        if pid:
            until = time.monotonic() + stopped_s if os.WIFSTOPPED(status) else None
        elif until is not None and time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            until = None
        else:
            time.sleep(POLL_S)
