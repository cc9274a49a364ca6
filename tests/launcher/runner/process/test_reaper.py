"""Test the reaper with a runner that is stopped and so does not end."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from launcher.runner.process.reaper import RUN_ANOTHER_EXIT_CODE, wait_for_end

AGAIN_ONCE = """
import os
from launcher.runner.process import reaper
reaper.MAX_SESSION_S = {max_session_s}
os._exit(reaper.run_under_reaper(lambda is_reused: 7 if is_reused else reaper.RUN_ANOTHER_EXIT_CODE, lambda: {heard}))
"""
STOPS_ITSELF = "kill -STOP $$; exit 7"


def test_runner_stopped_for_too_long_is_killed() -> None:
    with subprocess.Popen(["bash", "-c", STOPS_ITSELF]) as child:
        status = wait_for_end(child.pid, stopped_s=0.0)
        child.returncode = 0  # already reaped
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def test_runner_continued_in_time_ends_by_itself() -> None:
    with subprocess.Popen(["bash", "-c", STOPS_ITSELF]) as child:

        def continue_it() -> None:
            while " T " not in Path(f"/proc/{child.pid}/stat").read_text():
                time.sleep(0.01)
            os.kill(child.pid, signal.SIGCONT)

        helper = threading.Thread(target=continue_it)
        helper.start()
        status = wait_for_end(child.pid, stopped_s=30.0)
        helper.join()
        child.returncode = 0
    assert os.waitstatus_to_exitcode(status) == 7


@pytest.mark.parametrize(
    ("max_session_s", "heard", "code"),
    [(60, True, 7), (0, True, RUN_ANOTHER_EXIT_CODE), (60, False, RUN_ANOTHER_EXIT_CODE)],
    ids=["young", "old", "alone"],
)
def test_session_that_is_old_or_unread_takes_no_other_job(max_session_s: int, heard: bool, code: int) -> None:
    program = AGAIN_ONCE.format(max_session_s=max_session_s, heard=heard)
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == code
