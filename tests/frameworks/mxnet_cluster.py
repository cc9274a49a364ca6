"""Describe a cluster that runs MXNet, Horovod and Open MPI, and log in to it."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from local.run.user import User

NODES = 3
MASTER = "deeplearning-master"
WORKERS = tuple(f"deeplearning-worker{node_index}" for node_index in range(1, NODES + 1))
EXAMPLES = Path(__file__).parents[2] / "examples"
SHARED_CONNECTION = (
    "-o", "ControlMaster=auto", "-o", "ControlPath=/run/ssh-%C", "-o", "ControlPersist=120", "-o", "ConnectTimeout=60"
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class MxnetCluster:
    """A deployed cluster and its user."""

    user: User
    before: dict[str, list[str]] = field(default_factory=dict)
    """Command lines of the user's processes on each node before the first job."""

    def processes(self, alias: str) -> list[str]:
        """List the command lines of all processes of a node's login user; the listing's own are always the same."""
        return self.on(alias, "ps -u ubuntu -o args=").splitlines()

    def on(self, alias: str, command: str) -> str:
        """Return a command's output, both streams, in a login shell like a person's."""
        login = f"timeout 400 bash -l <<'END' 2>&1\n{command}\nEND"
        try:
            return self.user.output(*self.user.ssh_command(alias, login, options=SHARED_CONNECTION)).strip()
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"exit code {error.returncode} of {command}\n{error.stdout}") from error

    def on_master(self, command: str) -> str:
        return self.on(MASTER, command)
