"""Find running jobs whose checkpoints are, or may be, lost with the nodes' disks, from the launcher's records.

The login user writes these records but this code runs as root, so nothing but a checked id leaves this module.
"""

import json
import os
import pwd
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

from bootstrap.jobs.job_directories import JOBS, entries, is_locked

RECORD: Final = "job.json"
"""Record of a job in its directory: launcher.job_records.records.RECORD_FILE."""
MAX_RECORD: Final = 1 << 20
"""Longest record in bytes."""
JOB_ID: Final = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{7}")


class JobsAtRisk(NamedTuple):
    """Ids of the jobs, oldest first."""

    local: list[str]
    """Jobs whose checkpoints only the nodes have."""
    unknown: list[str]
    """Durable jobs whose checkpoint location the launcher cannot determine."""


def find_jobs_at_risk(root: Path, user: str) -> JobsAtRisk:
    """Return the jobs of the login user, by the records on this machine."""
    try:
        jobs = root / pwd.getpwnam(user).pw_dir.lstrip("/") / JOBS
    except KeyError:
        return JobsAtRisk([], [])
    running = [entry.path for entry in entries(jobs) if JOB_ID.fullmatch(entry.name) and is_locked(entry)]
    records = {Path(path).name: _read(Path(path, RECORD)) for path in sorted(running)}
    return JobsAtRisk(
        local=[job for job, record in records.items() if record.get("local_checkpoints") is True],
        unknown=[job for job, record in records.items() if record.get("unknown_checkpoints") is True],
    )


def _read(record: Path) -> dict[str, object]:
    """Return a record's fields; none if it cannot be read."""
    try:
        # A pipe or a device in place of the file must not stop the agent.
        fd = os.open(record, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            known = json.loads(file.read(MAX_RECORD)) if stat.S_ISREG(os.fstat(fd).st_mode) else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}
