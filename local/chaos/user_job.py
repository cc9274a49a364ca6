"""Run a user's jobs in a local AWS and follow them from the user's machine."""

import json
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from bootstrap.contract import CONNECTION_IDLE_VARIABLE, MASTER_HOST
from local.chaos import job_script
from local.chaos.job_cases import OPTIONS, REACTION_TIMEOUT_S, JobCase, JobOutcome, RecordedEnd
from local.chaos.leftovers import TOKEN
from local.run.user import User

RENDEZVOUS_S = 6.0
STEPS, STEPS_AGAIN, STEP_S = 120, 30, 0.3
"""Number of steps of the first attempt, long enough for the fault on a busy machine, and of a restarted one."""
SCRIPT = Path(job_script.__file__).read_text()
READ_S = 10.0
SESSION = ("-o", "ControlPath=none", "-o", "ServerAliveInterval=0", "-a")
"""Options without agent forwarding: pooled connections are reused only with the same agent, and each session has its
own."""


class Job:
    """Runs one job on the master in its own session. `token` marks its processes and its record."""

    def __init__(self, user: User, job_case: JobCase, *, token: str) -> None:
        self.case = job_case
        self.token = token
        self._lines: list[tuple[float, str]] = []
        self._ended: float | None = None
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            user.ssh_command(MASTER_HOST, _command(job_case, token=token), options=SESSION),
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

    def wait_for_line(self, text: str, *, timeout_s: float) -> bool:
        """Wait for a line that contains a text; return True if it arrived in time."""
        with self._news:
            self._news.wait_for(lambda: self._ended is not None or self._has_line(text), timeout_s)
            return self._has_line(text)

    def _has_line(self, text: str) -> bool:
        return any(text in line for _, line in self._lines)

    def wait_for_end(self, *, until: float) -> bool:
        """Wait for the end until a time of the monotonic clock; return True if it occurred."""
        with self._news:
            return self._news.wait_for(lambda: self._ended is not None, max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Close the user's session, and read its remaining output."""
        self._process.kill()
        self._reader.join(READ_S)

    def outcome(self, *, since: float) -> JobOutcome:
        """Return what was observed of the job, in seconds from a time of the monotonic clock."""
        with self._news:
            return JobOutcome(
                lines=[(at - since, line) for at, line in self._lines],
                ended_s=None if self._ended is None else self._ended - since,
                code=self._process.returncode if self._ended is not None else None,
            )


def _command(job_case: JobCase, *, token: str) -> str:
    """Return the command line that the user types, which also shows the job's output."""
    script = ["python", "-c", SCRIPT, *map(str, (RENDEZVOUS_S, STEPS, STEPS_AGAIN, STEP_S)), token]
    options = [*OPTIONS[job_case.policy], "--env", f"{TOKEN}:{token}"]
    if job_case.is_detached:
        return f"exec 2>&1; job=$({shlex.join(['launch', '--detach', *options, *script])}) && exec launch logs -f $job"
    launch = shlex.join(["launch", *options, *script])
    return (
        f"exec 2>&1; {launch}"
        if job_case.uses_idle_connections
        else f"exec 2>&1; {CONNECTION_IDLE_VARIABLE}=0 {launch}"
    )


def recorded_ends(user: User) -> Mapping[str, RecordedEnd]:
    """Read from their records how the jobs on the master ended, by token.

    Raises CalledProcessError and TimeoutExpired.
    """
    records = json.loads(user.ssh(MASTER_HOST, "launch list --json", timeout_s=REACTION_TIMEOUT_S))
    return {
        record["command"][-1]: RecordedEnd(state=record["state"], exit_code=record["exit_code"]) for record in records
    }


def fill_connection_pool(user: User) -> str | None:
    """Run a job that succeeds and leaves its connections in the pool; return what was wrong, or None."""
    command = user.ssh_command(MASTER_HOST, "launch true 2>&1", options=SESSION)
    try:
        done = subprocess.run(
            command,
            env=dict(user.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=REACTION_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"launch true did not end in {REACTION_TIMEOUT_S:g} s"
    return f"launch true ended with {done.returncode}: {done.stdout}{done.stderr}" if done.returncode else None
