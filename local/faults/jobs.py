"""Jobs of a user's in a local AWS, followed from the user's machine, and what is left of them on the nodes."""

import os
import shlex
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from bootstrap.contract import KEEP_VARIABLE, MASTER_HOST
from launcher.runner.idle import IDLE_S
from local.faults import job_script
from local.faults.job_rounds import ANSWER_S, OPTIONS, Round, Told
from local.user import User

MEETING_S, STEPS, STEP_S = 4.0, 60, 0.3
SCRIPT = Path(job_script.__file__).read_text()
TOKEN = "FAULTS_TOKEN"  # noqa: S105  (marks the processes of one fault's jobs)
PROGRAM = b"deeplearning/current/launcher"
"""In the command line of the launcher's own processes on a node."""
KEEPER = PROGRAM + b"/keep/keeper.py"
"""In that of one that keeps connections for the next launch (docs/decisions/018)."""
IDLE = b"launch-idle"
WAITS_S = IDLE_S + 15.0
"""So long may wait what waits for the next launch; the keeper less, and some time is for a busy machine."""
TICKS = os.sysconf("SC_CLK_TCK")
READ_S = 10.0
SESSION = ("-o", "ControlPath=none", "-o", "ServerAliveInterval=0", "-a")
"""Without an agent, which is another in each session: connections are kept for who has the same."""


class Job:
    """One job, started on the master in a session of its own."""

    def __init__(self, user: User, one: Round, *, token: str) -> None:
        words = ["python", "-c", SCRIPT, str(MEETING_S), str(STEPS), str(STEP_S)]
        launch = shlex.join(["launch", *OPTIONS[one.wish], "--env", f"{TOKEN}:{token}", *words])
        if not one.takes_kept:
            launch = f"{KEEP_VARIABLE}=0 {launch}"
        self.round = one
        self._lines: list[tuple[float, str]] = []
        self._ended: float | None = None
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            user.ssh_command(MASTER_HOST, f"{launch} 2>&1", options=SESSION),
            env=dict(user.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._lines.append((time.monotonic(), line.rstrip("\n")))
                self._news.notify_all()
        self._process.stdout.close()
        self._process.wait()
        with self._news:
            self._ended = time.monotonic()
            self._news.notify_all()

    def await_line(self, words: str, *, timeout_s: float) -> bool:
        """Whether a line with these words came in time."""
        with self._news:
            self._news.wait_for(lambda: self._ended is not None or self._says(words), timeout_s)
            return self._says(words)

    def _says(self, words: str) -> bool:
        return any(words in line for _, line in self._lines)

    def await_end(self, *, until: float) -> bool:
        """Whether it ended by a time of the monotonic clock."""
        with self._news:
            return self._news.wait_for(lambda: self._ended is not None, max(0.0, until - time.monotonic()))

    def leave(self) -> None:
        """Close the user's session, and read what was said in it."""
        self._process.kill()
        self._reader.join(READ_S)

    def told(self, *, since: float) -> Told:
        """What came of it, in seconds from a time of the monotonic clock."""
        with self._news:
            return Told(
                lines=[(at - since, line) for at, line in self._lines],
                ended_s=None if self._ended is None else self._ended - since,
                code=self._process.returncode if self._ended is not None else None,
            )


def leave_connections(user: User) -> str | None:
    """A job that ends well, and whose connections then wait for the next one; returns what was wrong, or None."""
    command = user.ssh_command(MASTER_HOST, "launch true 2>&1", options=SESSION)
    try:
        done = subprocess.run(
            command,
            env=dict(user.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"launch true did not end in {ANSWER_S:g} s"
    return f"launch true ended with {done.returncode}: {done.stdout}{done.stderr}" if done.returncode else None


def left_behind(token: str) -> list[str]:
    """Processes of these jobs on any node, the launcher's own too, as they are seen from outside."""
    kept = _kept_pipes()
    found = []
    for process in _processes():
        command = _read(process / "cmdline")
        is_ours = PROGRAM in command or f"{TOKEN}={token}".encode() in _read(process / "environ")
        if is_ours and not _waits(process, command, kept=kept):
            found.append(f"{process.name} {command[:100]!r}")
    return found


def _waits(process: Path, command: bytes, *, kept: set[str]) -> bool:
    """Whether it belongs to no job: a runner between two and its guard, a keeper, or a connection that one holds.

    None of them for longer than it should: a runner begins its wait, and a keeper its work, with its process.
    """
    name = _read(process / "comm").strip()
    if KEEPER in command or name == IDLE:
        return age_s(process) < WAITS_S
    if name == b"launch-guard":
        return [_read(child / "comm").strip() for child in _children(process)] == [IDLE]
    return command.startswith(b"ssh\0") and bool(_pipes(process) & kept)


def age_s(process: Path) -> float:
    """Seconds since a process started; 0 when it has ended. See proc(5) for the field."""
    fields = _read(process / "stat").rpartition(b")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / TICKS if fields else 0.0


def kept_connections() -> set[str]:
    """Processes of ssh that lead to runners which wait for the next launch, on any node."""
    kept = _kept_pipes()
    return {
        process.name
        for process in _processes()
        if _read(process / "cmdline").startswith(b"ssh\0") and _pipes(process) & kept
    }


def _kept_pipes() -> set[str]:
    return set().union(*(_pipes(process) for process in _processes() if KEEPER in _read(process / "cmdline")))


def _children(process: Path) -> list[Path]:
    return [Path("/proc", pid.decode()) for pid in _read(process / "task" / process.name / "children").split()]


def _processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended
        return b""


def _pipes(process: Path) -> set[str]:
    """The pipes that a process has an end of."""
    found = set()
    with suppress(OSError):  # it has ended
        for fd in (process / "fd").iterdir():
            with suppress(OSError):
                found.add(os.readlink(fd))  # noqa: PTH115  (a name such as pipe:[1] is no path)
    return {name for name in found if name.startswith("pipe:")}
