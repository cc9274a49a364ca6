"""Make the lines with which the master runs the project's own programs on the nodes, as root."""

import shlex
from typing import Final

from bootstrap.contract import CLUSTER_KEY_FILE, CURRENT_RELEASE, MASTER
from cli.aws.nodes import Member

SSH_FAILED: Final = 255
"""Exit code of ssh itself (EXIT STATUS in ssh(1))."""
SSH: Final = (
    *("ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR"),
    *("-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-o", f"IdentityFile={CLUSTER_KEY_FILE}"),
)


def bootstrap_line(member: Member, *arguments: str) -> str:
    """Return the line that runs a command of the bootstrap program on a node."""
    words = ["sudo", "-n", "python3", f"{CURRENT_RELEASE}/bootstrap", *arguments]
    return shlex.join(words if member.node_type == MASTER else [*_ssh(member), *words])


def _ssh(member: Member) -> list[str]:
    """Return ssh's words for a node: the master's own files may not name it."""
    return [
        *SSH,
        *("-o", f"HostName={member.address}"),
        *("-o", f"HostKeyAlias={member.alias}"),
        *("-o", f"KnownHostsCommand=/bin/echo {member.alias} {member.host_key}"),
        member.alias,
    ]
