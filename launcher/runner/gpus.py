"""Find out who uses this node's GPUs: processes that compute on them, and jobs that have claimed them.

A node without GPUs, or one that cannot tell, reports nothing: unknown does not mean in use.
"""

import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.atomic_file import write_atomically
from launcher.paths import JOBS_DIR
from launcher.runner.logs import is_running

DEADLINE_S = 5.0
"""nvidia-smi takes up to a second if no process keeps the driver loaded, and for ever if a GPU hangs."""
CLAIM_FILE = "gpus.json"


class GpuQuestion:
    """Ask nvidia-smi while the runner does other things."""

    def __init__(self, home: str) -> None:
        self._jobs = Path(home, JOBS_DIR)
        self._smi = shutil.which("nvidia-smi")
        self._asked = self._ask("--query-compute-apps=gpu_uuid,pid,process_name")

    def answer(self) -> dict[str, Any]:
        """Return what launcher.transport.gpus_in_use.GpusInUse reads."""
        if self._smi is None:
            return {"processes": [], "jobs": {}}
        computing = _rows(self._asked, columns=3)
        index = dict(_rows(self._ask("--query-gpu=uuid,index"), columns=2)) if computing else {}
        processes = [
            (index.get(uuid, uuid), uuid, f"process {pid} ({Path(name).name})") for uuid, pid, name in computing
        ]
        return {"processes": processes, "jobs": claims(self._jobs)}

    def _ask(self, query: str) -> "subprocess.Popen[str] | None":
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


def _rows(asked: "subprocess.Popen[str] | None", *, columns: int) -> list[list[str]]:
    if asked is None:
        return []
    try:
        said, _ = asked.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        # Do not wait for it: a process that waits for a hung GPU cannot be killed.
        asked.kill()
        return []
    rows = [[word.strip() for word in line.split(",", columns - 1)] for line in said.splitlines()]
    return [row for row in rows if len(row) == columns] if asked.returncode == 0 else []


def claim(directory: str, gpus: list[str] | None) -> None:
    """Record in a job's directory which GPUs it takes: its processes may not have reached them yet."""
    with suppress(OSError):
        write_atomically(Path(directory, CLAIM_FILE), json.dumps(gpus).encode("ascii"))


def claims(jobs: Path) -> dict[str, list[str] | None]:
    """Return the GPUs of every job that runs on this node."""
    found = {}
    for file in jobs.glob(f"*/{CLAIM_FILE}"):
        with suppress(OSError, ValueError):
            if is_running(file.parent):
                found[file.parent.name] = json.loads(file.read_text())
    return found
