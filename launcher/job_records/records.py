"""Define a job's record: a JSON file beside its logs, on the launcher's machine.

It never contains values of variables.
"""

import enum
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bootstrap.contract import JOB_NAME_PATTERN
from launcher.atomic_file import write_atomically
from launcher.shell_words import ASSIGNMENT
from launcher.spec import DEFAULT_GRACE_S

RECORD_FILE = "job.json"
RECORD_VERSION = 2
"""Version of the record format. New keys keep the version; readers skip unknown keys."""
SHELL_ASSIGNMENT = re.compile(
    # Match the beginning of a word even within quotes, because the line may be for another shell.
    r"""(?P<name>(?:^|[\s;&|('"`])[A-Za-z_]\w*\+?=)"""
    r"""(?:'[^']*'?|"(?:\\.|[^"\\])*"?|`[^`]*`?|\$?\([^)]*\)?|\$|\\.?|[^\s'"`$(\\;&|])*""",
    re.DOTALL,
)
SHELL_LINE = re.compile(r"[\s;&|(]")
SHELL_OPTION = re.compile(r"-[a-z]*c")
"""Matches an option such as ``bash -lc`` takes, which a command line follows."""
ENV_OPTIONS = ("-u", "--unset", "-C", "--chdir")
"""Options of env(1) with a value."""


class JobState(str, enum.Enum):
    """State of a job; all names but WAITING are TorchX's (torchx.specs.AppState)."""

    PENDING = "PENDING"
    """The job is submitted; its launcher has not connected to its nodes yet."""
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    """The job has no nodes yet: its launcher is in the queue; or the job is durable and no launcher runs it, for
    example because its nodes are gone (`JobRecord.is_suspended`)."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    """The user ended the job: ``launch stop``, Ctrl-C, a closed terminal."""

    @property
    def is_terminal(self) -> bool:
        """Return True if the job has ended."""
        return self not in (JobState.PENDING, JobState.RUNNING, JobState.WAITING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """The code that ran."""

    commit: str | None = None
    """Commit of the git checkout in which the job was started."""
    dirty: bool | None = None
    """True if files tracked by git had uncommitted changes."""
    digest: str | None = None
    """Digest of the synced directory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """Record of one job; its fields are the keys of ``launch status --json``, so they keep their names."""

    id: str
    state: JobState
    command: tuple[str, ...]
    hosts: tuple[str, ...]
    """Hosts in rank order, by their names in the hosts file."""
    framework: str
    """Its value of --framework; ``mpi`` with --launcher mpi."""
    cwd: str
    user: str
    name: str | None = None
    """Name that the user gave it; several jobs may have the same one."""
    started_by: str | None = None
    """Name of the SSH key with which the user had logged in; None if unknown."""
    pid: int
    """Process id of the launcher; valid only while it holds the job's lock (launcher.job_records.lock)."""
    machine: str | None = None
    """Name of the launcher's machine, for display."""
    boot_id: str | None = None
    """Boot id of that machine; `pid` is valid only during that boot."""
    submitted_at: str
    """Time at which the user started the job; ISO 8601, UTC."""
    detached: bool = False
    grace_s: float = DEFAULT_GRACE_S
    """Seconds between SIGTERM and SIGKILL."""
    revision: Revision = field(default_factory=Revision)
    logs: dict[str, list[str]] = field(default_factory=dict)
    """Names of the processes' logs by host; empty before the processes start."""
    end: str | None = None
    """None while the job runs, or if its end was not recorded."""
    exit_code: int | None = None
    reason: str | None = None
    """Reason of the failure, in one line."""
    failed_rank: int | None = None
    """Rank that failed first; None if no rank has."""
    restarts: int = 0
    gpus: dict[str, list[str] | None] = field(default_factory=dict)
    """GPUs that the job takes on each host; None for all."""
    waits: bool = False
    """True if the job may wait for nodes in use (``--wait``); False if it is refused instead."""
    queue_position: int | None = None
    """Position in the queue, from 1; None if the job is not in the queue."""
    waiting: str | None = None
    """Reason why a WAITING job waits, as a sentence for the user; None if nothing more is known."""
    starting: bool = False
    """True while a job whose turn has come connects to its nodes and copies files; the job already owns its GPUs."""
    local_checkpoints: bool = False
    """True if its checkpoints are only on the nodes' disks, as far as the command shows."""
    unknown_checkpoints: bool = False
    """True if it is durable and its command does not show where its checkpoints are."""
    durable: bool = False
    attempt: int = 1
    """Number of times that a master has started the job; for durable jobs."""

    @property
    def is_suspended(self) -> bool:
        """Return True if the job is durable, waits, and no launcher runs it: it is not in this master's queue."""
        return self.state is JobState.WAITING and (self.waiting is None or not self.pid)

    def to_bytes(self) -> bytes:
        """Return the record as JSON for people and programs."""
        values = {"version": RECORD_VERSION, **asdict(self)}
        return (json.dumps(values, indent=2) + "\n").encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "JobRecord":
        """Parse what `to_bytes` wrote, in this release or a later one. Raises ValueError."""
        try:
            values: dict[str, Any] = json.loads(data)
            known = {name: values[name] for name in _names(cls) & values.keys()}
            known["revision"] = Revision(
                **{name: value for name, value in known.get("revision", {}).items() if name in _names(Revision)}
            )
            known["name"] = _job_name(known.get("name"))
            known |= {name: tuple(known[name]) for name in ("command", "hosts")}
            return cls(**{**known, "state": JobState(known["state"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a job's record: {error}") from error


def _job_name(value: object) -> str | None:
    """Return a job's name if it has the form of a name: terminals and other lists show it."""
    return value if isinstance(value, str) and re.fullmatch(JOB_NAME_PATTERN, value) else None


def _names(record: type[JobRecord | Revision]) -> set[str]:
    return {field.name for field in fields(record)}


def new_job_id() -> str:
    """Return a unique job id that sorts by time."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(seconds))}-{nanoseconds // 10**6:03d}{os.urandom(2).hex()}"


def now() -> str:
    """Return the time in the format of records."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def without_values(command: Sequence[str]) -> tuple[str, ...]:
    """Return `command` without the values of variables that it sets, because users put secrets there.

    When in doubt, remove a value.
    """
    kept: list[str] = []
    leading, before = True, ""
    for word in command:
        if word.rpartition("/")[2] == "env":
            leading = True
        elif before not in ENV_OPTIONS and not (word.startswith("-") or ASSIGNMENT.match(word)):
            leading = False
        is_line = SHELL_LINE.search(word) is not None
        if ASSIGNMENT.match(word) and (leading or is_line) and not SHELL_OPTION.fullmatch(before):
            kept.append(f"{word.partition('=')[0]}=...")
        elif is_line or SHELL_OPTION.fullmatch(before):
            kept.append(SHELL_ASSIGNMENT.sub(r"\g<name>...", word))
        else:
            kept.append(word)
        before = word
    return tuple(kept)


def write_record(directory: Path, record: JobRecord) -> None:
    """Write the record atomically."""
    write_atomically(directory / RECORD_FILE, record.to_bytes())


def read_record(directory: Path) -> JobRecord | None:
    """Read the record in a job's directory; None if it is missing or unreadable."""
    try:
        return JobRecord.from_bytes((directory / RECORD_FILE).read_bytes())
    except (OSError, ValueError):
        return None
