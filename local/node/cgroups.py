"""Find and remove the cgroup of a run, which holds its nodes."""

import contextlib
import os
import time
from pathlib import Path

REMOVE_TIMEOUT_S = 30.0


def cgroup_root() -> Path:
    """Return where the cgroup v2 hierarchy is mounted: hybrid machines keep it beside the v1 ones."""
    unified = Path("/sys/fs/cgroup/unified")
    return unified if unified.is_dir() else Path("/sys/fs/cgroup")


def run_cgroup(run_dir: Path) -> Path:
    """Return the cgroup that holds the nodes of a run."""
    return cgroup_root() / f"deeplearning-cdk-{run_dir.name}"


def remove_cgroup(cgroup: Path) -> None:
    """Kill every process in a cgroup and remove it with those below it, if it exists."""
    if not cgroup.is_dir():
        return
    with contextlib.suppress(OSError):  # Another process's sweep has just removed it.
        (cgroup / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + REMOVE_TIMEOUT_S
    while cgroup.is_dir() and time.monotonic() < deadline:
        for directory, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):  # It is busy until its last process is gone.
                Path(directory).rmdir()
        time.sleep(0.02)
