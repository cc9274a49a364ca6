"""Build the command lines that the master uses to run bootstrap commands on nodes, as root."""

import shlex
from typing import Final

from bootstrap.contract import CLUSTER_KEY_FILE, CURRENT_RELEASE_LINK, MASTER
from cli.aws.nodes import ClusterNode
from cli.ssh.config import NODE_CONNECT_TIMEOUT_S

SSH_FAILED: Final = 255
"""Exit code of ssh itself (EXIT STATUS in ssh(1))."""
SSH: Final = (
    *("ssh", "-n", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={NODE_CONNECT_TIMEOUT_S}", "-o", "LogLevel=ERROR"),
    *("-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", f"IdentityFile={CLUSTER_KEY_FILE}"),
)


def bootstrap_command(member: ClusterNode, *arguments: str) -> str:
    """Return the shell command that runs a command of the bootstrap program on a node."""
    args = ["sudo", "-n", "python3", f"{CURRENT_RELEASE_LINK}/bootstrap", *arguments]
    return shlex.join(args if member.node_type == MASTER else [*_ssh(member), *args])


def _ssh(member: ClusterNode) -> list[str]:
    """Return ssh and its arguments for a node: the master's own files may not name it."""
    return [
        *SSH,
        *("-o", f"HostName={member.address}"),
        *("-o", f"HostKeyAlias={member.alias}"),
        *("-o", f"KnownHostsCommand=/bin/echo {member.alias} {member.host_key}"),
        member.alias,
    ]
