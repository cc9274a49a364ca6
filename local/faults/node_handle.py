"""Reach a node of a local AWS from outside, through its cgroup, its link and its disk.

Nothing here needs the node's cooperation or its network, so it also works on a disconnected or hung node.
"""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootstrap.contract import NODE_STATE_FILE
from local.errors import LocalError
from local.network.vpc_network import link_name
from local.node.cgroups import run_cgroup
from local.node.container import init_process

COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeHandle:
    """Handle for breaking a node from outside, running or not; the data plane's own object is ``container.Node``."""

    instance_id: str
    directory: Path
    """Directory of its disk and its console log."""
    cgroup: Path

    @property
    def link(self) -> str:
        """Return its interface on the router."""
        return link_name(self.instance_id)

    @property
    def is_up(self) -> bool:
        return init_process(self.cgroup) is not None

    def init(self) -> int:
        """Return the process id of its systemd. Raises LocalError."""
        pid = init_process(self.cgroup)
        if pid is None:
            raise LocalError(f"{self.instance_id} is not running")
        return pid

    def path(self, path: str) -> Path:
        """Return a path to one of the node's files, even in its /run, that this process can open. Raises LocalError."""
        return Path(f"/proc/{self.init()}/root", path.lstrip("/"))

    def run(self, *command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Return the standard output of a command in the node's namespaces, as root. Raises LocalError.

        Do not use it on a node that may be shutting down: its systemd waits 90 s for a process that is not its child.
        """
        entered = ["nsenter", f"--target={self.init()}", "--all", "--", *command]
        try:
            done = subprocess.run(
                entered, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=timeout_s
            )
        except subprocess.TimeoutExpired as error:
            raise LocalError(f"waited {timeout_s:.0f} s for {command[0]} on {self.instance_id}") from error
        if done.returncode != 0:
            output = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise LocalError(f"{command[0]} on {self.instance_id}: {output[-1]}")
        return done.stdout

    def state(self) -> Mapping[str, Any] | None:
        """Return what its agent last applied (NODE_STATE_FILE); None before that, and while it does not run."""
        try:
            state: Mapping[str, Any] = json.loads(self.path(NODE_STATE_FILE).read_text())
        except (OSError, LocalError):
            return None
        return state


def all_nodes(run_dir: Path) -> list[NodeHandle]:
    """Return all nodes, sorted by instance id."""
    return [node_handle(run_dir, directory.name) for directory in sorted((run_dir / "nodes").glob("i-*"))]


def node_handle(run_dir: Path, instance_id: str) -> NodeHandle:
    """Return the handle of an instance's node, which need not exist."""
    # In a local AWS, the cgroup v2 hierarchy is mounted at the usual place, even if the machine has it elsewhere.
    cgroup = Path("/sys/fs/cgroup", run_cgroup(run_dir).name, instance_id)
    return NodeHandle(instance_id=instance_id, directory=run_dir / "nodes" / instance_id, cgroup=cgroup)


def wait_until(condition: Callable[[], bool], what: str, *, timeout_s: float, every_s: float = 0.02) -> None:
    """Poll until a condition holds. Raises LocalError at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise LocalError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(every_s)
