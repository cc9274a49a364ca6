"""Split the runner into two processes, so that neither's end leaves processes behind, even after ``kill -9``.

The reaper waits for its child, the actual runner, and kills all remaining descendants. The runner stops its processes
when the reaper is gone. For each further job, the reaper forks a new child.
"""

import os
import time
from _collections_abc import Callable  # importing collections is slow

from launcher.runner.fast_imports import signal
from launcher.runner.process.processes import (
    STOP_SIGNALS,
    adopt_orphans,
    die_with_parent,
    end_orphans,
    exit_code,
    rename,
)

ORPHANS_TIMEOUT_S = 5.0
IDLE_NAME, REAPER_NAME = "launch-idle", "launch-reaper"
"""Process names of an idle runner and of its reaper."""
MAX_STOPPED_S = 20.0
"""Seconds that a child may be stopped (SIGSTOP); the launcher's heartbeat timeout."""
POLL_S = 0.5
MAX_SESSION_S = 3600.0
"""Maximum age of a session that accepts another job, in seconds; an older one's login certificate may have expired."""
RUN_ANOTHER_EXIT_CODE = 75
"""Exit code of a child whose job ended cleanly, so that another may follow (EX_TEMPFAIL of sysexits(3))."""


def run_under_reaper(run_job: Callable[[bool], int], report_idle: Callable[[], bool]) -> int:
    """Call `run_job` in a child, and in a new one while it exits with RUN_ANOTHER_EXIT_CODE; return the last result.

    `run_job` gets True if this session has run a job before. Once a job's processes are gone, `report_idle` tells the
    launcher that the session is free; if it returns False, nobody reads the report and the session ends.
    """
    adopt_orphans()
    reaper, is_reused, since = os.getpid(), False, time.monotonic()
    while True:
        child = os.fork()
        if child == 0:
            for number in STOP_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            die_with_parent(signal.SIGTERM)
            if is_reused:
                rename(IDLE_NAME)
            # The reaper may have died before die_with_parent() took effect.
            result = run_job(is_reused) if os.getppid() == reaper else 0
            end_orphans(timeout_s=ORPHANS_TIMEOUT_S)
            return result
        for number in STOP_SIGNALS:
            # Ignore signals; ssh's hangup and pkill also reach the child, which handles them.
            signal.signal(number, signal.SIG_IGN)
        status = wait_for_end(child)
        is_clean = end_orphans(timeout_s=ORPHANS_TIMEOUT_S)
        code = exit_code(os.waitstatus_to_exitcode(status))
        if code != RUN_ANOTHER_EXIT_CODE or not is_clean or time.monotonic() - since > MAX_SESSION_S:
            return code
        # Clean up before the next child starts, so that the launcher need not wait for it.
        if not report_idle():
            return code
        is_reused = True
        rename(REAPER_NAME)


def wait_for_end(child: int, *, stopped_s: float = MAX_STOPPED_S) -> int:
    """Reap the child and return its status (wait(2)).

    The child always ends unless it is stopped; then kill it, because its ranks would keep running.
    """
    kill_at: float | None = None
    while True:
        # A stopped child may never change again, so then poll instead of waiting.
        poll = 0 if kill_at is None else os.WNOHANG
        pid, status = os.waitpid(child, os.WUNTRACED | os.WCONTINUED | poll)
        if pid and not (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
            return status
        if pid:
            kill_at = time.monotonic() + stopped_s if os.WIFSTOPPED(status) else None
        elif kill_at is not None and time.monotonic() > kill_at:
            os.kill(child, signal.SIGKILL)
            kill_at = None
        else:
            time.sleep(POLL_S)
