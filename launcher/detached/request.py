"""Pass a job from the shell to its unit through a private in-memory file.

The file contains the shell's variables, including secrets, so it must never reach a disk or a command line.
"""

import json
import os
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from launcher.paths import SSH_AGENT_VARIABLE

LIMITS = tuple(name for name in dir(resource) if name.startswith("RLIMIT_"))


@dataclass(frozen=True, kw_only=True, slots=True)
class DurableStart:
    """One start of a durable job. Its id was chosen on submission."""

    job_id: str
    program: tuple[str, ...]
    """Program of the unit, without the argument that names the request's file."""
    attempt: int = 1
    """Number of starts so far, including this one."""
    submitted: str | None = None
    """Time of submission; None means now."""
    started_by: str | None = None
    """Name of the submitter's SSH key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DetachedJob:
    """Job as the user requested it in the shell."""

    job_id: str
    arguments: list[str]
    """Arguments of ``launch``."""
    environment: dict[str, str]
    cwd: str
    umask: int
    limits: dict[str, int]
    """Soft limits of the shell (ulimit)."""
    attempt: int = 1
    submitted: str | None = None
    """Same as in DurableStart."""
    started_by: str | None = None
    """Name of the user's SSH key."""

    @classmethod
    def of_this_process(
        cls,
        arguments: Sequence[str],
        *,
        job_id: str,
        cwd: str,
        durable: DurableStart | None = None,
        started_by: str | None = None,
    ) -> "DetachedJob":
        """Capture the request from this process, including what it inherited from the shell."""
        umask = os.umask(0o077)
        os.umask(umask)
        return cls(
            job_id=job_id,
            arguments=list(arguments),
            # A forwarded agent ends with the session. Without its variable, a job that does not need it keeps working.
            environment={name: value for name, value in os.environ.items() if name != SSH_AGENT_VARIABLE},
            cwd=cwd,
            umask=umask,
            attempt=durable.attempt if durable else 1,
            submitted=durable.submitted if durable else None,
            started_by=durable.started_by if durable else started_by,
            limits={name: resource.getrlimit(getattr(resource, name))[0] for name in LIMITS},
        )

    def write(self, path: Path) -> None:
        """Write the file; `path` must be in memory, in a directory that only this user can read."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(asdict(self), file)

    @classmethod
    def take(cls, path: Path) -> "DetachedJob":
        """Read the file and delete it."""
        values = json.loads(path.read_text())
        path.unlink()
        return cls(**values)

    def enter(self) -> None:
        """Apply the shell's environment, limits and directory to this process."""
        os.environ.clear()
        os.environ.update(self.environment)
        os.umask(self.umask)
        os.chdir(self.cwd)
        for name, soft_limit in self.limits.items():
            number = getattr(resource, name)
            _, hard_limit = resource.getrlimit(number)
            resource.setrlimit(number, (_lower_limit(soft_limit, hard_limit), hard_limit))


def _lower_limit(one: int, other: int) -> int:
    return min((limit for limit in (one, other) if limit != resource.RLIM_INFINITY), default=resource.RLIM_INFINITY)
