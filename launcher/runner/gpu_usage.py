"""Report the use of this node's GPUs: processes that compute on them, and jobs that have claimed them.

The launcher checks the report before it starts a job (launcher.job.gpu_check). A node without GPUs, or without an
answer from nvidia-smi, reports nothing: unknown does not mean in use.
"""

import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.atomic_file import write_atomically
from launcher.job_directories import is_running
from launcher.paths import JOBS_DIR

TIMEOUT_S = 5.0
"""Timeout for nvidia-smi in seconds; it takes up to a second if no process keeps the driver loaded, and hangs with a
hung GPU.
"""
CLAIM_FILE = "gpus.json"


class GpuQuery:
    """Query to nvidia-smi that runs in the background."""

    def __init__(self, home: str) -> None:
        self._jobs = Path(home, JOBS_DIR)
        self._smi = shutil.which("nvidia-smi")
        self._compute_apps = self._start_query("--query-compute-apps=gpu_uuid,pid,process_name")

    def answer(self) -> dict[str, Any]:
        """Return the report (launcher.transport.gpus_in_use.GpusInUse)."""
        if self._smi is None:
            return {"processes": [], "jobs": {}}
        computing = _rows(self._compute_apps, columns=3)
        index = dict(_rows(self._start_query("--query-gpu=uuid,index"), columns=2)) if computing else {}
        processes = [
            (index.get(uuid, uuid), uuid, f"process {pid} ({Path(name).name})") for uuid, pid, name in computing
        ]
        return {"processes": processes, "jobs": claims(self._jobs)}

    def _start_query(self, query: str) -> "subprocess.Popen[str] | None":
        if self._smi is None:
            return None
        try:
            return subprocess.Popen(
                [self._smi, query, "--format=csv,noheader"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        except OSError:
            return None


def _rows(query: "subprocess.Popen[str] | None", *, columns: int) -> list[list[str]]:
    if query is None:
        return []
    try:
        output, _ = query.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # Do not wait: a process that waits for a hung GPU cannot be killed.
        query.kill()
        return []
    rows = [[word.strip() for word in line.split(",", columns - 1)] for line in output.splitlines()]
    return [row for row in rows if len(row) == columns] if query.returncode == 0 else []


def claim(directory: str, gpus: list[str] | None) -> None:
    """Record the job's GPUs in its directory, because its processes may not have opened them yet."""
    with suppress(OSError):
        write_atomically(Path(directory, CLAIM_FILE), json.dumps(gpus).encode("ascii"))


def claims(jobs: Path) -> dict[str, list[str] | None]:
    """Return the GPUs of every job that runs on this node."""
    gpus = {}
    for file in jobs.glob(f"*/{CLAIM_FILE}"):
        with suppress(OSError, ValueError):
            if is_running(file.parent):
                gpus[file.parent.name] = json.loads(file.read_text())
    return gpus
