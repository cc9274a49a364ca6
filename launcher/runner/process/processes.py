"""Start rank processes, and end every process that they leave behind."""

import errno
import os
import time
from _collections_abc import Mapping, Sequence  # importing collections is slow

from launcher.runner.fast_imports import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    TYPE_CHECKING,
    prctl,
    read_file,
    signal,
)
from launcher.transport.protocol import NOT_FOUND

if TYPE_CHECKING:
    from typing import NoReturn

NAME_FILE = "/proc/self/comm"
"""File with this process's name; see proc(5)."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def adopt_orphans() -> None:
    """Make this process the parent of all orphaned descendants, so that none escapes (prctl(2))."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Request a signal for when the parent ends."""
    prctl(PR_SET_PDEATHSIG, number)


def rename(name: str) -> None:
    """Set this process's name in process lists (``ps -o comm``); the command line stays.

    Nothing depends on the name, so ignore a failure.
    """
    try:
        file = os.open(NAME_FILE, os.O_WRONLY | os.O_CLOEXEC)
        os.write(file, name.encode("ascii"))
        os.close(file)
    except OSError:
        pass


class ChildProcess:
    """A child process and our ends of its pipes."""

    __slots__ = ("pid", "stderr", "stdout")

    def __init__(self, pid: int, *, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr

    def wait(self) -> int:
        """Reap the process; return its exit code, or minus the signal's number."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start_process(command: Sequence[str], *, environment: Mapping[str, str], cwd: str) -> ChildProcess:
    """Start a rank in its own session and process group.

    subprocess.Popen could do this, but importing it takes longer than starting the rank.
    """
    # Look it up before the fork, because the child copies every page that it touches, and os.execvpe touches many.
    path = find_program(command[0], environment=environment, cwd=cwd)
    (stdout, child_stdout), (stderr, child_stderr), (failure, child_failure) = os.pipe(), os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        _exec_in_child(path, command, environment, cwd, stdout=child_stdout, stderr=child_stderr, failure=child_failure)
    for fd in (child_stdout, child_stderr, child_failure):
        os.close(fd)
    # A successful exec closes the pipe.
    number = os.read(failure, 16)
    os.close(failure)
    if number:
        os.waitpid(pid, 0)
        os.close(stdout)
        os.close(stderr)
        raise OSError(int(number), os.strerror(int(number)))
    return ChildProcess(pid, stdout=stdout, stderr=stderr)


def _exec_in_child(
    path: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: str,
    *,
    stdout: int,
    stderr: int,
    failure: int,
) -> "NoReturn":
    try:
        os.setsid()
        die_with_parent()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals; a rank must not
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.execve(path, list(command), environment)
    except OSError as error:
        os.write(failure, str(error.errno).encode("ascii"))
    finally:
        os._exit(NOT_FOUND)


def find_program(name: str, *, environment: Mapping[str, str], cwd: str) -> str:
    """Return the path of the program that a shell in `cwd` would run, given the PATH of `environment`.

    Raises FileNotFoundError.
    """
    if "/" in name:
        return name
    candidate = None
    for directory in environment.get("PATH", os.defpath).split(":"):
        path = os.path.join(cwd, directory, name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            candidate = candidate or path
    if candidate is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    # The file is not executable, so execve will fail and the caller will report its error.
    return candidate


def exit_code(returncode: int) -> int:
    """Return the exit code that a shell would report: 128 + the signal's number for a killed process."""
    return 128 - returncode if returncode < 0 else returncode


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; return False if no process in it may be signaled."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def runs_as_other_user(group: int) -> bool:
    """Return True if a process group runs as another user, for example through sudo."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return False


def group_is_gone(group: int) -> bool:
    """Return True if a group whose leader was reaped is empty; reap the orphans in it."""
    try:
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass
    return not signal_group(group, 0)


def end_orphans(*, timeout_s: float) -> bool:
    """Kill all descendants of this process that left their rank's session or outlived the runner.

    Return True if none is left.
    """
    until = time.monotonic() + timeout_s
    while (pids := _children()) and time.monotonic() < until:
        for pid in map(int, pids):
            _kill(pid)
        while _reap_one():
            pass
        time.sleep(0.01)
    return not pids


def _children() -> list[str]:
    return read_file(f"/proc/self/task/{os.getpid()}/children").split()


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
