"""Add the agent's announcements of pauses to the logs of durable jobs, where their owners look later.

A job's log gets each announcement once: its directory remembers the last one of each kind.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bootstrap.contract import PAUSE_NOTICES_FILE
from launcher.atomic_file import write_atomically
from launcher.job_records.recorder import jobs_directory
from launcher.paths import JOB_LOG

LOGGED_NOTICES_FILE = "pause-notices.json"
"""File in a job's directory with the announcements that its log has: {KIND: SENTENCE}."""


def log_pauses(job_ids: Iterable[str], *, notices: Path = Path(PAUSE_NOTICES_FILE)) -> None:
    """Add what is new to these jobs' logs. Raises OSError on a full disk."""
    announced = _read(notices)
    for job_id in job_ids if announced else ():
        directory = jobs_directory() / job_id
        if directory.is_dir():
            _log(directory, announced)


def _log(directory: Path, announced: dict[str, Any]) -> None:
    told = _read(directory / LOGGED_NOTICES_FILE)
    new = {
        kind: notice["sentence"]
        for kind, notice in announced.items()
        # A job that has not been told of a pause need not know that it has been withdrawn.
        if notice["sentence"] != told.get(kind) and (notice["is_coming"] or kind in told)
    }
    if not new:
        return
    lines = "".join(f"launch: {sentence}\n" for sentence in new.values()).encode(errors="replace")
    log = os.open(directory / JOB_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(log, lines)
    finally:
        os.close(log)
    write_atomically(directory / LOGGED_NOTICES_FILE, json.dumps({**told, **new}).encode("ascii"))


def _read(file: Path) -> dict[str, Any]:
    """Return the file's object; an empty one if there is none."""
    try:
        values: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return values
