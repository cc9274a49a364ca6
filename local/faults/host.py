"""Break a node's host or its agent."""

import contextlib
import os
import signal
from pathlib import Path

from bootstrap.contract import AGENT_SERVICE
from local.errors import LocalError
from local.faults.node_handle import NodeHandle, wait_until
from local.node.container import is_frozen

FREEZE_TIMEOUT_S = 20.0


def kill(node: NodeHandle) -> None:
    """End every process abruptly, like a crash of the host; EC2 then shows the instance terminated."""
    _control(node, "cgroup.kill", "1")


def freeze(node: NodeHandle) -> None:
    """Stop every process until the node is thawed. Raises LocalError."""
    if not node.is_up:
        raise LocalError(f"{node.instance_id} is not running")
    _control(node, "cgroup.freeze", "1")
    wait_until(
        lambda: is_frozen(node.cgroup) or not node.cgroup.exists(),
        f"{node.instance_id} to freeze",
        timeout_s=FREEZE_TIMEOUT_S,
    )


def thaw(node: NodeHandle) -> None:
    """Let the processes continue where they stopped."""
    _control(node, "cgroup.freeze", "0")


def _parent(pid: int) -> int:
    """Return a process's parent (proc(5): the second field after the name, which may contain anything)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _control(node: NodeHandle, file: str, value: str) -> None:
    try:
        (node.cgroup / file).write_text(value)
    except OSError:
        if node.cgroup.exists():
            raise


def kill_agent(node: NodeHandle) -> None:
    """Send SIGKILL to the agent's main process, if it is running; systemd may restart it. Raises LocalError."""
    init, service = node.init(), node.cgroup / "payload/system.slice" / AGENT_SERVICE
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is not running at the moment
        for pid in map(int, (service / "cgroup.procs").read_text().split()):
            if _parent(pid) == init:
                os.kill(pid, signal.SIGKILL)
