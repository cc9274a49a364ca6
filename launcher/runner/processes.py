"""Rank processes: how one starts, and how all that it left behind ends."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None)


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it, so that none gets away (prctl(2))."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Get a signal when the parent ends."""
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def start(command: Sequence[str], *, environment: Mapping[str, str], cwd: str) -> subprocess.Popen[bytes]:
    """A rank in a session, and so a process group, of its own."""
    return subprocess.Popen(
        command,
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def exit_code(returncode: int) -> int:
    """The exit code a shell would report: 128 + the signal's number for a killed process."""
    return 128 - returncode if returncode < 0 else returncode


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False when nobody is left in it that we may signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def group_is_gone(group: int) -> bool:
    """Whether a group whose leader was waited for is empty; reaps the orphans in it."""
    try:
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass
    return not signal_group(group, 0)


def end_orphans(*, deadline_s: float) -> None:
    """Kill what is left below this process: what left its rank's session, or outlived the runner."""
    until = time.monotonic() + deadline_s
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while (pids := children.read_text().split()) and time.monotonic() < until:
        for pid in map(int, pids):
            _kill(pid)
        while _reap_one():
            pass
        time.sleep(0.01)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _reap_one() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False
