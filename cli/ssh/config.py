"""Generate OpenSSH's configuration for a node, as text for ssh_config(5) and as command-line options.

ssh reads host keys from the cluster's table at each login (KnownHostsCommand, OpenSSH 8.5 and later), so no file of
known hosts needs cleaning up after a replacement.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cli.aws.nodes import ClusterNode

CONNECT_TIMEOUT_S: Final = 20
"""Timeout in seconds of a login from the user's machine, with ssh or paramiko.

It covers the jump through the master and the host key from the table. Between nodes: launcher/transport/ssh.py.
"""

NODE_CONNECT_TIMEOUT_S: Final = 10
"""Timeout in seconds of a login from the master to a node."""
WATCH_CONNECT_TIMEOUT_S: Final = 5
"""Timeout in seconds of the same login by ``status --watch``; cli.watch.node_checks.NODE_TIMEOUT_S includes it."""
KEEPALIVE_S: Final = 15
"""Seconds between keepalives, by which a login from the user's machine detects that its peer is gone. Between nodes:
launcher/transport/ssh.py."""
KEEPALIVES_UNANSWERED: Final = 4
"""Number of unanswered keepalives after which a login through Session Manager ends."""
FORWARD_KEEPALIVES_UNANSWERED: Final = 3
"""Number of unanswered keepalives after which a tunnel ends (cli.ssh.forward)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginSettings:
    """Login settings that all nodes of a cluster share."""

    cluster_name: str
    login_user: str
    master: ClusterNode
    master_address: str | None
    """The master's public address; None in a private cluster."""
    known_hosts_command: tuple[str, ...]
    """Command line that prints known hosts lines for the name appended to it."""
    session_command: tuple[str, ...] = ()
    """In a private cluster, the command line that connects ssh to the node whose name is appended to it."""
    identity: str | None = None
    """Private key file. None: the files that ssh tries by default."""

    def host_name(self, member: ClusterNode) -> str:
        """Return a node's name in ssh configurations, distinct for each cluster."""
        return f"{self.cluster_name}-{member.short_name}"


def ssh_options_for(settings: LoginSettings, member: ClusterNode) -> dict[str, str]:
    """Return the options for one node, except the jump through the master.

    Through Session Manager each node is reached directly, and its address is not used.
    Values from the table or the stack's outputs have been checked (bootstrap.cluster.records, cli.aws.clusters): they
    contain nothing that ssh or a shell would expand. Paths are quoted here.
    """
    is_master = member == settings.master
    address = settings.master_address if is_master or settings.session_command else member.address
    ssh_options = {
        "HostName": address or member.alias,
        "User": settings.login_user,
        # Forward the agent to the master and no further: root on a node with the agent can sign with it.
        "ForwardAgent": "yes" if is_master else "no",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": member.alias,
        # Name the algorithm, so that ssh need not read the table again to order the key types that it offers.
        "HostKeyAlgorithms": "ssh-ed25519",
        "KnownHostsCommand": f"{' '.join(map(_quoted, settings.known_hosts_command))} %H",
        # A hung node accepts connections without answering.
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        "UserKnownHostsFile": "none",
        "GlobalKnownHostsFile": "none",
    }
    if settings.session_command:
        ssh_options |= _through_session_manager(settings, member)
    if settings.identity is not None:
        ssh_options |= {"IdentityFile": _quoted(settings.identity), "IdentitiesOnly": "yes"}
    return ssh_options


def _through_session_manager(settings: LoginSettings, member: ClusterNode) -> dict[str, str]:
    """Return options that look up the node when ssh connects, so that no instance id or address can be stale."""
    command = (*settings.session_command, member.short_name)
    return {
        # The user's shell parses it, after ssh has expanded %-sequences.
        "ProxyCommand": shlex.join(command).replace("%", "%%"),
        # A session ends after 20 minutes without traffic; if the node is lost, it stays open on this side.
        "ServerAliveInterval": str(KEEPALIVE_S),
        "ServerAliveCountMax": str(KEEPALIVES_UNANSWERED),
    }


def _quoted(word: str) -> str:
    """Quote a word for ssh, which splits by quotes and backslashes like a shell, and expands %-sequences."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def ssh_arguments(settings: LoginSettings, member: ClusterNode) -> list[str]:
    """Return ssh's arguments for one node; the last one is the destination."""
    ssh_options = ssh_options_for(settings, member)
    if member != settings.master and not settings.session_command:
        hop = ["ssh", *_as_arguments(ssh_options_for(settings, settings.master) | {"ForwardAgent": "no"})]
        # A shell parses it, so insert the address itself; %p is a number that ssh has parsed.
        through = f"{shlex.join(hop).replace('%', '%%')} -W {shlex.quote(f'[{member.address}]:')}%p"
        ssh_options["ProxyCommand"] = f"{through} {shlex.quote(settings.host_name(settings.master))}"
    return [*_as_arguments(ssh_options), settings.host_name(member)]


def _as_arguments(ssh_options: Mapping[str, str]) -> list[str]:
    return [word for name, value in ssh_options.items() for word in ("-o", f"{name}={value}")]


def config_text(settings: LoginSettings, members: Sequence[ClusterNode]) -> str:
    """Return a block for ~/.ssh/config with which plain ssh, scp and rsync work."""
    return "\n".join(_config_block(settings, member) for member in members)


def _config_block(settings: LoginSettings, member: ClusterNode) -> str:
    ssh_options = ssh_options_for(settings, member)
    # Use no instance ids: the block outlives them, and a stale one could lead to another user's machine.
    names = [settings.host_name(member)]
    if member == settings.master:
        names.append(f"{settings.cluster_name}-worker{member.node_index}")
    elif not settings.session_command:
        ssh_options["ProxyJump"] = settings.host_name(settings.master)
        # The block is kept, so let the master resolve the name when ssh connects.
        ssh_options["HostName"] = member.alias
    lines = [f"Host {' '.join(names)}", *(f"  {name} {value}" for name, value in ssh_options.items())]
    return "\n".join(lines) + "\n"


def known_hosts_text(members: Sequence[ClusterNode], host: str | None) -> str:
    """Return known-hosts lines of the member with the name `host`, or of all members."""
    lines = []
    for member in members:
        names = (*member.host_names, member.instance_id, member.address)
        if host is None or host in names:
            lines.append(f"{','.join(names)} {member.host_key}\n")
    return "".join(lines)
