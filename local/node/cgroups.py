"""Find and remove the cgroup that contains a run's nodes."""

import contextlib
import os
import time
from pathlib import Path

REMOVE_TIMEOUT_S = 30.0


def cgroup_root() -> Path:
    """Return where the cgroup v2 hierarchy is mounted; hybrid machines have it beside the v1 ones."""
    unified = Path("/sys/fs/cgroup/unified")
    return unified if unified.is_dir() else Path("/sys/fs/cgroup")


def run_cgroup(run_dir: Path) -> Path:
    """Return the cgroup that contains the nodes of a run."""
    return cgroup_root() / f"deeplearning-cdk-{run_dir.name}"


def remove_cgroup(cgroup: Path) -> None:
    """Kill every process in a cgroup and remove it with those below it, if it exists."""
    if not cgroup.is_dir():
        return
    with contextlib.suppress(OSError):  # another process's sweep has just removed it
        (cgroup / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + REMOVE_TIMEOUT_S
    while cgroup.is_dir() and time.monotonic() < deadline:
        for directory, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):  # busy until its last process is gone
                Path(directory).rmdir()
        time.sleep(0.02)
