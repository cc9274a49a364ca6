"""What is kept of a job: one file of JSON beside its logs, on the machine whose launcher runs it.

Values of variables are never in it.
"""

import enum
import json
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from launcher.job.spec import GRACE_S

RECORD_FILE = "job.json"
RECORD_VERSION = 1
"""Carried by each record. Keys may be added under the same version; readers pass over what they do not know."""
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
SHELL_ASSIGNMENT = re.compile(
    # Where a word may begin, within quotes too: the line may be another shell's.
    r"""(?P<name>(?:^|[\s;&|('"`])[A-Za-z_]\w*\+?=)"""
    r"""(?:'[^']*'?|"(?:\\.|[^"\\])*"?|`[^`]*`?|\$?\([^)]*\)?|\$|\\.?|[^\s'"`$(\\;&|])*""",
    re.DOTALL,
)
SHELL_LINE = re.compile(r"[\s;&|(]")
SHELL_OPTION = re.compile(r"-[a-z]*c")
"""As in ``bash -lc``: a line follows."""
ENV_OPTIONS = ("-u", "--unset", "-C", "--chdir")
"""Those of env(1) that have a value of their own."""


class State(str, enum.Enum):
    """A job's state, under TorchX's names (torchx.specs.AppState)."""

    PENDING = "PENDING"
    """Its nodes are being reached."""
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    """Somebody ended it: ``launch stop``, Ctrl-C, a closed terminal."""

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self not in (State.PENDING, State.RUNNING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """Which code ran."""

    commit: str | None = None
    """Of the git checkout that the job was started in."""
    dirty: bool | None = None
    """Whether files that git knows had been changed."""
    digest: str | None = None
    """Of the folder that was synced to the nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One job."""

    id: str
    state: State
    command: tuple[str, ...]
    hosts: tuple[str, ...]
    """In rank order, as the hosts file names them."""
    framework: str
    cwd: str
    user: str
    pid: int
    """Of the launcher; worth something only while it holds the job's lock (see launcher.history.lock)."""
    machine: str | None = None
    """Where that number is worth something: a name for people."""
    boot_id: str | None = None
    """Of that machine, since its start."""
    start: str
    """When it was asked for; ISO 8601, UTC."""
    detached: bool = False
    grace_s: float = GRACE_S
    """Between TERM and KILL, when it is stopped."""
    revision: Revision = field(default_factory=Revision)
    logs: dict[str, list[str]] = field(default_factory=dict)
    """For each host the names of its processes' logs; none before the processes start."""
    end: str | None = None
    """None while the job goes on, and when nobody was there to see its end."""
    exit_code: int | None = None
    reason: str | None = None
    """Why it did not succeed, in one line."""
    restarts: int = 0

    def to_bytes(self) -> bytes:
        """JSON for people and programs."""
        values = {"version": RECORD_VERSION, **asdict(self)}
        return (json.dumps(values, indent=2) + "\n").encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "JobRecord":
        """The record that `to_bytes` wrote, of this release or a later one. Raises ValueError."""
        try:
            values: dict[str, Any] = json.loads(data)
            known = {name: values[name] for name in _names(cls) & values.keys()}
            known["revision"] = Revision(
                **{name: value for name, value in known.get("revision", {}).items() if name in _names(Revision)}
            )
            known |= {name: tuple(known[name]) for name in ("command", "hosts")}
            return cls(**{**known, "state": State(known["state"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a job's record: {error}") from error


def _names(record: type[JobRecord | Revision]) -> set[str]:
    return {one.name for one in fields(record)}


def now() -> str:
    """The time as records have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def without_values(command: Sequence[str]) -> tuple[str, ...]:
    """`command` without the values of the variables that it sets: people put secrets there.

    Rather a value too many is left out than one too few.
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
    """Keep the record, whole or not at all."""
    path = directory / RECORD_FILE
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(record.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise


def read_record(directory: Path) -> JobRecord | None:
    """The record in a job's directory; None where there is none that can be read."""
    try:
        return JobRecord.from_bytes((directory / RECORD_FILE).read_bytes())
    except (OSError, ValueError):
        return None
