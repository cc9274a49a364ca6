"""Read the records of jobs from the launcher on the master.

Any process on the master can write them, so validate them and remove control characters from messages.
"""

import json
import shlex
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

from cli.errors import ClusterError, UsageError
from cli.ssh.master_connection import CommandResult, MasterConnection, last_line

ENDED: Final = ("SUCCEEDED", "FAILED", "CANCELLED")
WAITING: Final = "WAITING"
"""State of a queued job, and of a durable one whose nodes are gone; no part of it runs on the nodes."""
LAUNCHER_USAGE_ERROR: Final = 2
MAX_COMMAND: Final = 60
COPY_ONLY: Final = "true"
"""Command of a push's job."""


class JobRow(NamedTuple):
    """Cells of a job in a table, in the order of the columns."""

    id: str
    state: str
    start: str
    duration: str
    nodes: str
    started_by: str
    name: str
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One job; the field names are the keys of the JSON objects that dlcluster prints."""

    id: str
    name: str | None
    """Name given with ``--name``; several jobs may have the same one."""
    state: str
    command: tuple[str, ...]
    nodes: tuple[str, ...]
    submitted_at: str
    end: str | None
    exit_code: int | None
    reason: str | None
    failed_rank: int | None
    """Rank that failed first; None if no rank has."""
    restarts: int
    queue_position: int | None
    """Position in the queue, from 1."""
    waiting: str | None
    """Position in the queue and what the job waits for, as a sentence for the user."""
    durable: bool
    local_checkpoints: bool
    """True if its checkpoints are lost with the nodes' disks."""
    unknown_checkpoints: bool
    """True if it is durable and launch cannot tell where its checkpoints are."""
    detached: bool
    directory: str
    started_by: str | None
    """Name of the SSH key with which the job was started; None if unknown."""

    @property
    def line(self) -> str:
        """Return the command as a single line."""
        line = self.command[2] if self.command[:2] == ("/bin/bash", "-c") else shlex.join(self.command)
        return f"{line} (only copies files)" if line == COPY_ONLY else line

    def row(self, now: datetime) -> "JobRow":
        """Return the job's table cells."""
        return JobRow(
            id=self.id,
            state=self._state_and_restarts(),
            start=self.submitted_at,
            duration=self._duration(now),
            nodes=str(len(self.nodes)),
            started_by=self.started_by or "-",
            name=self.name or "-",
            command=self.line if len(self.line) <= MAX_COMMAND else f"{self.line[: MAX_COMMAND - 3]}...",
        )

    def _state_and_restarts(self) -> str:
        if self.restarts == 0:
            return self.state
        return f"{self.state}, {self.restarts} {'restart' if self.restarts == 1 else 'restarts'}"

    def _duration(self, now: datetime) -> str:
        if self.end is None and self.state in ENDED:
            return ""
        try:
            end = datetime.fromisoformat(self.end.replace("Z", "+00:00")) if self.end else now
            seconds = int((end - datetime.fromisoformat(self.submitted_at.replace("Z", "+00:00"))).total_seconds())
        except (ValueError, TypeError):
            return ""
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def to_dict(self) -> dict[str, Any]:
        """Return the job as a JSON object."""
        return asdict(self)


def read_jobs(connection: MasterConnection, *, timeout_s: float | None = None) -> list[Job]:
    """Return the jobs started on the master, newest last."""
    rows = _json(run_launcher_command(connection, "list", "--json", timeout_s=timeout_s))
    if not isinstance(rows, list):
        raise ClusterError("the launcher on the master did not return a list of jobs")
    return [_job(row) for row in rows]


def running_jobs(connection: MasterConnection) -> list[str]:
    """Return the ids of the running jobs, newest last."""
    return [job.id for job in read_jobs(connection) if job.state not in (*ENDED, WAITING)]


def read_job(connection: MasterConnection, word: str | None) -> Job:
    """Return the job of an id or a name, by default the running or the latest. Raises UsageError if there is none."""
    return _job(_json(run_launcher_command(connection, "status", "--json", *([word] if word else []))))


def run_launcher_command(connection: MasterConnection, *args: str, timeout_s: float | None = None) -> CommandResult:
    """Run a subcommand of the launcher on the master. Raises ClusterError with the launcher's own message."""
    done = connection.output(shlex.join(["launch", *args]), timeout_s=timeout_s)
    if done.exit_code:
        message = (
            last_line(done.stderr).removeprefix("launch: ").removeprefix("error: ") or "launch failed on the master"
        )
        raise (UsageError if done.exit_code == LAUNCHER_USAGE_ERROR else ClusterError)(message)
    return done


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(timezone.utc)


def _json(done: CommandResult) -> Any:
    try:
        return json.loads(done.stdout)
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"the master's answer cannot be read as JSON: {error}") from error


def _job(values: Any) -> Job:
    try:
        return Job(
            id=str(values["id"]),
            name=_text(values.get("name")),
            state=str(values["state"]),
            command=tuple(map(str, values["command"])),
            nodes=tuple(map(str, values["hosts"])),
            submitted_at=str(values["submitted_at"]),
            end=_text(values.get("end")),
            exit_code=None if values.get("exit_code") is None else int(values["exit_code"]),
            reason=_text(values.get("reason")),
            failed_rank=None if values.get("failed_rank") is None else int(values["failed_rank"]),
            restarts=int(values.get("restarts", 0)),
            queue_position=None if values.get("queue_position") is None else int(values["queue_position"]),
            waiting=_text(values.get("waiting")),
            durable=bool(values.get("durable", False)),
            local_checkpoints=bool(values.get("local_checkpoints", False)),
            unknown_checkpoints=bool(values.get("unknown_checkpoints", False)),
            detached=bool(values.get("detached", False)),
            directory=str(values["cwd"]),
            started_by=_text(values.get("started_by")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ClusterError(f"the master has a job record that cannot be used: {error!r}") from error


def _text(value: object) -> str | None:
    return None if value is None else str(value)
