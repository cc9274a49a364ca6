"""Build the command lines that start a runner: through OpenSSH, or directly on this machine."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from bootstrap.contract import CLUSTER_KEY_FILE, NODE_HOST_PREFIX
from launcher.errors import ErrorKind
from launcher.hosts.hostfile import Host

QUIET, LOUD = "ERROR", "INFO"
CONNECT_TIMEOUT_S = 10
"""Timeout in seconds of a login between nodes; launcher.job.connect.READY_TIMEOUT_S caps it together with the
runner's start. From the user's machine, and for ``status --watch``: cli/ssh/config.py."""
KEEPALIVE_S = 5
"""Seconds between keepalives of a login between nodes. From the user's machine: cli/ssh/config.py."""
KEEPALIVES_UNANSWERED = 6
"""Number of unanswered keepalives after which ssh gives up on a node."""

OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ConnectTimeout": str(CONNECT_TIMEOUT_S),
    "ServerAliveInterval": str(KEEPALIVE_S),
    "ServerAliveCountMax": str(KEEPALIVES_UNANSWERED),
    # Suppress login banners.
    "LogLevel": QUIET,
    # A job's processes must not sign as the user who forwarded an agent.
    "ForwardAgent": "no",
    "ClearAllForwardings": "yes",
}

CLUSTER_OPTIONS = {
    # OpenSSH 9.0 to 9.8 prefer sntrup761, which costs this side six times the CPU time of the rest of a login. Their
    # x25519 is portable C and costs each side 2 ms more than libcrypto's P-256, which is as strong.
    # OpenSSH 9.9 and later then choose mlkem768x25519-sha256, which is stronger than sntrup761 and faster.
    # Spell out the names, because Open MPI treats quotes around a star as a part of the command.
    "KexAlgorithms": "-sntrup761x25519-sha512,sntrup761x25519-sha512@openssh.com,"
    "curve25519-sha256,curve25519-sha256@libssh.org",
}
"""Options between nodes of the cluster, whose sshd we configure."""

GIVEN_KEY_ONLY = "IdentitiesOnly=yes"
"""Option that keeps ssh from offering the agent's other keys."""

SSH_FAILED_EXIT_CODE = 255
"""Exit code of ssh for errors of its own; see EXIT STATUS in ssh(1)."""
ERROR_KINDS = {
    "Could not resolve hostname": ErrorKind.UNKNOWN_HOST,
    "Host key verification failed": ErrorKind.UNKNOWN_HOST_KEY,
    "Permission denied": ErrorKind.LOGIN_DENIED,
    "no matching key exchange method": ErrorKind.NO_KEY_EXCHANGE,
}
"""Kind of an error by a part of ssh's message."""

RUNNER = Path(__file__).parents[1] / "runner" / "__main__.py"
"""Path of the runner's program, the same on all nodes, because every node runs the launcher's release."""


def runner_command() -> list[str]:
    """Return the runner's command line, independent of PYTHON* variables and a user's packages."""
    return ["/usr/bin/python3", "-I", "-S", "-X", "utf8", str(RUNNER)]


def ssh_command(host: Host) -> list[str]:
    """Return the command line that starts the runner on `host`."""
    return [*client_command(host), "--", host.name, shlex.join(runner_command())]


def error_kind(message: str) -> str:
    """Return the ErrorKind that a message of ssh stands for."""
    return next((kind for part, kind in ERROR_KINDS.items() if part in message), ErrorKind.OTHER)


def with_verbose_ssh(command: Sequence[str]) -> list[str]:
    """Return the same command line with a higher log level, so that ssh names a failed negotiation."""
    return [f"LogLevel={LOUD}" if word == f"LogLevel={QUIET}" else word for word in command]


def client_command(host: Host) -> list[str]:
    """Return ssh and the options for a node such as `host`."""
    return ["ssh", "-T", *(word for name, value in _options(host).items() for word in ("-o", f"{name}={value}"))]


def _options(host: Host) -> dict[str, str]:
    """Use the cluster's key among its nodes if it is readable.

    A job must not depend on a person's agent, which may be gone tomorrow or offer more keys than sshd accepts.
    """
    options = OPTIONS if host.port is None else {**OPTIONS, "Port": str(host.port)}
    if not host.name.startswith(NODE_HOST_PREFIX):
        return options
    if os.access(CLUSTER_KEY_FILE, os.R_OK):
        options = {**options, "IdentityFile": CLUSTER_KEY_FILE, "IdentitiesOnly": "yes"}
    return {**options, **CLUSTER_OPTIONS}
