"""Ask every node from the master whether its agent runs and how busy its GPUs are; any answer proves its sshd.

Any process on a node can forge the answer, so validate it and treat anything unexpected as unknown.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from bootstrap.contract import AGENT_SERVICE, NODE_HOST_PREFIX
from cli.ssh.config import WATCH_CONNECT_TIMEOUT_S
from cli.ssh.master_connection import MasterConnection

NODE_TIMEOUT_S: Final = 8
"""Timeout for one node's answer, in seconds: a login, and nvidia-smi, which hangs when a GPU is lost."""
AT_ONCE: Final = 16
"""Number of nodes that the master checks simultaneously."""
MARGIN_S: Final = 10
"""Seconds beyond the nodes' timeouts before the connection to the master counts as lost."""
_GPU: Final = re.compile(r"(\d{1,3}), (\d{1,7}), (\d{1,7})")
_STATE: Final = re.compile(r"[a-z-]{1,20}")
_PROBE: Final = (
    f"systemctl is-active {AGENT_SERVICE}; if command -v nvidia-smi >/dev/null; then nvidia-smi "
    "--query-gpu=utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits; fi; true"
)
_SSH: Final = f"ssh -n -o BatchMode=yes -o ConnectTimeout={WATCH_CONNECT_TIMEOUT_S} -o LogLevel=ERROR"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """Use of one GPU."""

    busy_percent: int
    used_mib: int
    total_mib: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeCheck:
    """One node's answer."""

    sshd: bool
    """True if the master could log in to the node."""
    agent: str = ""
    """systemd's state of the agent: ``active`` or another one; empty if unknown."""
    gpus: tuple[Gpu, ...] = ()

    @property
    def cells(self) -> tuple[str, str, str]:
        """Return the node's cells in a table: agent, sshd, GPUs."""
        return self.agent or "unknown", "ok" if self.sshd else "no answer", self._gpu_cell()

    def _gpu_cell(self) -> str:
        if not self.gpus:
            return ""
        busy = round(sum(gpu.busy_percent for gpu in self.gpus) / len(self.gpus))
        used, total = (sum(found) / 1024 for found in zip(*((g.used_mib, g.total_mib) for g in self.gpus), strict=True))
        return f"{len(self.gpus)} x {busy}%, {used:.0f} of {total:.0f} GiB"

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as keys of a JSON object."""
        gpus = [{"busy_percent": g.busy_percent, "used_mib": g.used_mib, "total_mib": g.total_mib} for g in self.gpus]
        return {"agent": self.agent or None, "sshd": self.sshd, "gpus": gpus}


def check_nodes(connection: MasterConnection, node_indexes: Iterable[int]) -> dict[int, NodeCheck]:
    """Return each node's answer by its index. Raises ClusterError if the master does not answer."""
    indexes = tuple(node_indexes)
    rounds = -(-len(indexes) // AT_ONCE)
    done = connection.output(checks_command(indexes), timeout_s=rounds * NODE_TIMEOUT_S + MARGIN_S)
    return parse_answers(done.stdout.decode(errors="replace"), indexes)


def checks_command(node_indexes: Iterable[int]) -> str:
    """Return a command for the master's shell, which prints ``INDEX ANSWER`` for each line of each node's answer."""
    ask = (
        f'answer=$(timeout {NODE_TIMEOUT_S} {_SSH} "$0$1" "$2" 2>/dev/null) || answer="no answer"; '
        'printf "%s\\n" "$answer" | sed "s/^/$1 /"'
    )
    command = ["xargs", "-P", str(AT_ONCE), "-I", "{}", "sh", "-c", ask, NODE_HOST_PREFIX, "{}", _PROBE]
    return f"printf '%s\\n' {' '.join(map(str, node_indexes))} | {shlex.join(command)}"


def parse_answers(text: str, node_indexes: Iterable[int]) -> dict[int, NodeCheck]:
    """Parse the answers of these nodes; a node without one has no sshd."""
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        index, _, answer = line.partition(" ")
        lines.setdefault(index, []).append(answer)
    return {index: _parse_answer(lines.get(str(index), [])) for index in node_indexes}


def _parse_answer(lines: list[str]) -> NodeCheck:
    if not lines or not _STATE.fullmatch(lines[0]):
        return NodeCheck(sshd=False)
    matches = [_GPU.fullmatch(line) for line in lines[1:]]
    gpus = tuple(Gpu(busy_percent=int(m[1]), used_mib=int(m[2]), total_mib=int(m[3])) for m in matches if m)
    return NodeCheck(sshd=True, agent=lines[0], gpus=gpus)
