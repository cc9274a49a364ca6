"""Render the configuration of ssh and sshd, the known hosts and the cluster's authorized keys."""

from collections.abc import Iterable
from typing import Final

from bootstrap.cluster.membership import Member
from bootstrap.contract import AUTHORIZED_KEYS_DIR, CLUSTER_KEY_FILE, TEAM_KEYS_DIR
from bootstrap.files.hosts import host_names, in_index_order
from bootstrap.team_keys.keys import TeamKey

SSH_CLIENT: Final = """\
Host deeplearning-*
    ForwardAgent no
    StrictHostKeyChecking yes
"""
"""Configuration on a worker. Agent forwarding ends at the master, because root on a node can sign with a forwarded
agent."""
SSH_CLIENT_WITH_KEY: Final = f"""\
{SSH_CLIENT}Match host deeplearning-* exec "test -r {CLUSTER_KEY_FILE}"
    IdentitiesOnly yes
    IdentityFile {CLUSTER_KEY_FILE}
    IdentityFile ~/.ssh/id_ed25519
    IdentityFile ~/.ssh/id_rsa
"""
"""Configuration on the master. Naming one identity file disables the defaults, so name them too. IdentitiesOnly is set
because an agent with many keys would use up the attempts that sshd allows."""
_SSHD: Final = (
    f"AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2 {AUTHORIZED_KEYS_DIR}/%u {TEAM_KEYS_DIR}/%u\n"
    "ExposeAuthInfo yes\n"
)
"""Configuration of every sshd. With ExposeAuthInfo, ``launch`` records whose key started a job."""
SSHD_MASTER: Final = f"AllowAgentForwarding yes\n{_SSHD}"
SSHD_WORKER: Final = f"AllowAgentForwarding no\n{_SSHD}"


def known_hosts_lines(members: Iterable[Member]) -> str:
    """Render the system-wide known hosts: each node's key under all its host names and its address."""
    return "".join(
        f"{','.join([*host_names(member.node_index), member.address])} {member.host_key}\n"
        for member in in_index_order(members)
    )


def team_keys(keys: Iterable[TeamKey]) -> str:
    """Render the team's keys, which are valid from any address."""
    return "".join(f"{key.line}\n" for key in keys)


def authorized_keys(master: Member | None) -> str:
    """Render the cluster's key, valid only from the master's address; empty without a master or a key.

    The users' own keys stay in their own files.
    """
    if master is None or not master.ssh_key:
        return ""
    return f'from="{master.address}" {master.ssh_key} deeplearning-cdk\n'
