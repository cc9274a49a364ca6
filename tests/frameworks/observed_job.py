"""Observe and kill a job's processes from outside the nodes, which cannot themselves prove that none is left."""

import os
import re
import secrets
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.frameworks.mxnet_cluster import MASTER, SHARED_CONNECTION, MxnetCluster
from tests.frameworks.training import TIMEOUT_S

TOKEN = "OUTSIDE_TOKEN"
PAUSE_S = 0.1


class ObservedJob:
    """Runs one job on the master in its own session."""

    def __init__(self, cluster: MxnetCluster, launch: str, *command: str, log: Path) -> None:
        self._log, self._token = log, secrets.token_hex(8)
        line = f"exec launch --env {TOKEN}:{self._token} {launch} {shlex.join(command)} 2>&1"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                cluster.user.ssh_command(MASTER, line, options=SHARED_CONNECTION),
                env=dict(cluster.user.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, *, times: int) -> None:
        """Wait until its output matches a pattern that many times."""
        until = time.monotonic() + TIMEOUT_S
        while len(re.findall(pattern, self.output)) < times:
            assert self._process.poll() is None, self.output
            assert time.monotonic() < until, self.output
            time.sleep(PAUSE_S)

    def code(self) -> int:
        """Wait for the end and return the exit code."""
        return self._process.wait(TIMEOUT_S)

    def launcher(self) -> int:
        """Return the launcher's process id."""
        own = f"{TOKEN}:{self._token}"
        [pid] = [pid for pid in _pids() if (args := _args(pid)) and "python3" in args[0] and own in args]
        return pid

    def processes(self, program: str = "", *, below: str = "") -> list[int]:
        """List the job's processes with these words in their own and in their parent's command line."""
        return [
            pid
            for pid in pids_with(f"{TOKEN}={self._token}")
            if program in " ".join(_args(pid)) and below in " ".join(_args(_parent(pid)) if below else [])
        ]

    def is_gone(self) -> bool:
        """Return True if nothing of it is left on any node."""
        return self._process.poll() is not None and not self.processes()

    def wait_until_gone(self, *, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.is_gone():
            left = [" ".join(_args(pid)) for pid in self.processes()]
            assert time.monotonic() < until, (left, self.output)
            time.sleep(PAUSE_S)

    def kill_leftovers(self) -> None:
        """Kill what a failed test has left."""
        self._process.kill()
        self._process.wait(TIMEOUT_S)
        for pid in self.processes():
            _kill(pid)


@contextmanager
def observed_job(cluster: MxnetCluster, launch: str, *command: str, log: Path) -> Iterator[ObservedJob]:
    """Start a job; nothing of it outlives its test."""
    job = ObservedJob(cluster, launch, *command, log=log)
    try:
        yield job
    finally:
        job.kill_leftovers()


def pids_with(*variables: str) -> list[int]:
    """List the processes, on any node, that have all of these variables (each NAME=VALUE) in their environment."""
    expected = {variable.encode() for variable in variables}
    return [pid for pid in _pids() if expected <= set(_read(pid, "environ").split(b"\0"))]


def kill(*variables: str) -> None:
    """Wait for processes with all of these variables in their environment, and kill them."""
    until = time.monotonic() + TIMEOUT_S
    while not (pids := pids_with(*variables)):
        assert time.monotonic() < until, variables
        time.sleep(PAUSE_S)
    for pid in pids:
        _kill(pid)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # It has ended.
        return b""


def _args(pid: int) -> list[str]:
    return _read(pid, "cmdline").decode(errors="replace").rstrip("\0").split("\0")


def _parent(pid: int) -> int:
    # See proc(5); the process name before it may contain blanks and brackets.
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
