"""Find processes that jobs left on the nodes of a local AWS, apart from those that wait for the next launch."""

import math
import os
import time
from contextlib import suppress
from pathlib import Path

from launcher.runner.between_jobs import IDLE_TIMEOUT_S

TOKEN = "FAULTS_TOKEN"  # noqa: S105  (marks the processes of one fault's jobs)
LAUNCHER = b"deeplearning/current/launcher"
"""Part of the command line of the launcher's own processes on a node."""
DURABLE_SERVICE = LAUNCHER + b"/durable/__main__.py\0serve"
"""Part of the command line of the master's service that restarts durable jobs, which always runs."""
POOL_DAEMON = LAUNCHER + b"/transport/pool/daemon.py"
"""Part of the command line of the connection pool's daemon (docs/decisions/018)."""
IDLE = b"launch-idle"
MAX_IDLE_S = IDLE_TIMEOUT_S + 15.0
"""Seconds that an idle process may wait for the next launch; the margin is for a busy machine."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def find_ranks(token: str, *, before: float = math.inf) -> list[str]:
    """List a job's ranks that run on any node and, with `before`, started before that time of the monotonic clock."""
    least_s = time.monotonic() - before
    return [
        _line(process)
        for process in _processes()
        if f"{TOKEN}={token}".encode() in _read(process / "environ") and age_s(process) > least_s
    ]


def leftover_processes(token: str) -> list[str]:
    """List processes of jobs on any node: ranks with this token, and the launcher's own of any job."""
    pool_pipes = _pool_pipes()
    leftovers = []
    for process in _processes():
        command = _read(process / "cmdline")
        is_ours = LAUNCHER in command or f"{TOKEN}={token}".encode() in _read(process / "environ")
        if is_ours and not _is_idle(process, command, pool_pipes=pool_pipes):
            leftovers.append(_line(process))
    return leftovers


def _line(process: Path) -> str:
    return f"{process.name} {_read(process / 'cmdline')[:100]!r}"


def _is_idle(process: Path, command: bytes, *, pool_pipes: set[str]) -> bool:
    """Return True if a process belongs to no job.

    Such processes are an idle runner, its reaper, the pool daemon, a pooled connection, and the service for durable
    jobs.

    A runner's wait and the daemon's work start with their process, so a process older than MAX_IDLE_S is a leftover.
    """
    name = _read(process / "comm").strip()
    if DURABLE_SERVICE in command:
        return True
    if POOL_DAEMON in command or name == IDLE:
        return age_s(process) < MAX_IDLE_S
    if name == b"launch-reaper":
        return [_read(child / "comm").strip() for child in _children(process)] == [IDLE]
    return command.startswith(b"ssh\0") and bool(_pipes(process) & pool_pipes)


def age_s(process: Path) -> float:
    """Return the seconds since a process started; 0 if it has ended. See proc(5) for the field."""
    fields = _read(process / "stat").rpartition(b")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / TICKS_PER_S if fields else 0.0


def idle_connections() -> set[str]:
    """Return the ssh processes whose runners wait for the next launch, on any node."""
    pool_pipes = _pool_pipes()
    return {
        process.name
        for process in _processes()
        if _read(process / "cmdline").startswith(b"ssh\0") and _pipes(process) & pool_pipes
    }


def _pool_pipes() -> set[str]:
    return set().union(*(_pipes(process) for process in _processes() if POOL_DAEMON in _read(process / "cmdline")))


def _children(process: Path) -> list[Path]:
    return [Path("/proc", pid.decode()) for pid in _read(process / "task" / process.name / "children").split()]


def _processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # It has ended.
        return b""


def _pipes(process: Path) -> set[str]:
    """Return the pipes of which a process has an end open."""
    names = set()
    with suppress(OSError):  # It has ended.
        for fd in (process / "fd").iterdir():
            with suppress(OSError):
                names.add(os.readlink(fd))  # noqa: PTH115  (a name such as pipe:[1] is no path)
    return {name for name in names if name.startswith("pipe:")}
