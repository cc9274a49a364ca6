"""Find running jobs whose checkpoints are lost with the nodes' disks, from the launcher's records on the master.

The login user writes these records but this code runs as root, so nothing but a checked id leaves this module.
"""

import json
import os
import pwd
import re
import stat
from pathlib import Path
from typing import Final

from bootstrap.idle.load import JOBS, entries, is_locked

RECORD: Final = "job.json"
"""Record of a job in its directory: launcher.history.records.RECORD_FILE."""
MAX_RECORD: Final = 1 << 20
"""Longest record in bytes."""
JOB_ID: Final = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{7}")


def jobs_with_local_checkpoints(root: Path, user: str) -> list[str]:
    """Return the ids of these jobs, oldest first."""
    try:
        jobs = root / pwd.getpwnam(user).pw_dir.lstrip("/") / JOBS
    except KeyError:
        return []
    running = [entry.path for entry in entries(jobs) if JOB_ID.fullmatch(entry.name) and is_locked(entry)]
    return [Path(path).name for path in sorted(running) if _saves_locally(Path(path, RECORD))]


def _saves_locally(record: Path) -> bool:
    try:
        # A pipe or a device in place of the file must not stop the agent.
        fd = os.open(record, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            known = json.loads(file.read(MAX_RECORD)) if stat.S_ISREG(os.fstat(fd).st_mode) else {}
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(known, dict) and known.get("local_checkpoints") is True
