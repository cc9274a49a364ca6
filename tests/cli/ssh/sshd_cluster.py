"""A cluster whose two nodes are real sshd processes, and a user with a key and an SSH agent."""

import getpass
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cli.ssh.master_connection import SshTarget
from tests.cli.moto_cluster import MotoCluster
from tests.launcher.sshd import Node

PROGRAM = Path(__file__).parents[3] / "bin" / "dlcluster"
MASTER, WORKER = "127.0.0.51", "127.0.0.52"


@dataclass(frozen=True, kw_only=True)
class SshdCluster:
    """Two nodes, a user with a key and an agent, and AWS's view of them."""

    moto_cluster: MotoCluster
    identity: Path
    port: int
    nodes: tuple[Node, ...]
    environment: dict[str, str]

    def dlcluster(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, PROGRAM, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    def target(self, *, host_key: str | None = None) -> SshTarget:
        return SshTarget(
            address=MASTER,
            user=getpass.getuser(),
            host_key=host_key or self.nodes[0].host_key,
            identity=str(self.identity),
            port=self.port,
        )
