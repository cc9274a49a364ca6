"""The outer one of a runner's two processes, where the inner one is stopped and does not end by itself."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from launcher.runner.process.reaper import AGAIN, await_end

AGAIN_ONCE = """
import os
from launcher.runner.process import reaper
reaper.LONGEST_S = {longest_s}
os._exit(reaper.run_under_reaper(lambda is_further: 7 if is_further else reaper.AGAIN, lambda: {heard}))
"""
STOPS_ITSELF = "kill -STOP $$; exit 7"


def test_a_runner_that_is_stopped_for_long_is_killed() -> None:
    with subprocess.Popen(["bash", "-c", STOPS_ITSELF]) as child:
        status = await_end(child.pid, stopped_s=0.0)
        child.returncode = 0  # it is reaped
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def test_one_that_goes_on_in_time_ends_as_it_would() -> None:
    with subprocess.Popen(["bash", "-c", STOPS_ITSELF]) as child:

        def continue_it() -> None:
            while " T " not in Path(f"/proc/{child.pid}/stat").read_text():
                time.sleep(0.01)
            os.kill(child.pid, signal.SIGCONT)

        helper = threading.Thread(target=continue_it)
        helper.start()
        status = await_end(child.pid, stopped_s=30.0)
        helper.join()
        child.returncode = 0
    assert os.waitstatus_to_exitcode(status) == 7


@pytest.mark.parametrize(
    ("longest_s", "heard", "code"), [(60, True, 7), (0, True, AGAIN), (60, False, AGAIN)], ids=["young", "old", "alone"]
)
def test_a_session_that_is_too_old_or_alone_gets_no_further_job(longest_s: int, heard: bool, code: int) -> None:
    program = AGAIN_ONCE.format(longest_s=longest_s, heard=heard)
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == code
