"""How a node is reached: argument lists for OpenSSH, and for this machine without it."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from bootstrap.contract import CLUSTER_KEY_FILE, WORKER_HOST_PREFIX
from launcher.hosts.hostfile import Host

QUIET, LOUD = "ERROR", "INFO"
CONNECT_TIMEOUT_S = 10
ALIVE_INTERVAL_S = 5
ALIVE_COUNT = 6
"""A node that is silent for 5 * 6 s is lost."""

OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ConnectTimeout": str(CONNECT_TIMEOUT_S),
    "ServerAliveInterval": str(ALIVE_INTERVAL_S),
    "ServerAliveCountMax": str(ALIVE_COUNT),
    # A banner is for people.
    "LogLevel": QUIET,
    # People forward their agent; a job's processes must not be able to sign as the user.
    "ForwardAgent": "no",
    "ClearAllForwardings": "yes",
}

CLUSTER_OPTIONS = {
    # The first choice of OpenSSH 9.0 to 9.8 takes this side six times the processor time of all the rest. Its x25519 is
    # portable C, and takes each side 2 ms more than libcrypto's P-256, which is as strong. What is left of OpenSSH's
    # own list begins with that; from 9.9 on with mlkem768x25519-sha256, which is stronger, and faster than the first.
    # (Named in full: Open MPI takes an ssh command, and takes quotes around a star for a part of it.)
    "KexAlgorithms": "-sntrup761x25519-sha512,sntrup761x25519-sha512@openssh.com,"
    "curve25519-sha256,curve25519-sha256@libssh.org",
}
"""Among the cluster's own nodes, whose sshd we know."""

GIVEN_KEY_ONLY = "IdentitiesOnly=yes"
"""In a command line: no agent is asked for other keys."""

RUNNER = Path(__file__).parents[1] / "runner" / "__main__.py"
"""Every node runs the release that the launcher is from: the path is the same on all of them."""


def runner_command() -> list[str]:
    """The runner's command line; neither PYTHON* variables nor a user's packages can break it."""
    return ["/usr/bin/python3", "-I", "-S", "-X", "utf8", str(RUNNER)]


def ssh_command(host: Host) -> list[str]:
    """The command line that starts the runner on `host`."""
    return [*client_command(host), "--", host.name, shlex.join(runner_command())]


def louder(command: Sequence[str]) -> list[str]:
    """The same command line, by which ssh also says what it otherwise keeps to itself: that nothing in common was
    found with sshd, for one.
    """
    return [f"LogLevel={LOUD}" if word == f"LogLevel={QUIET}" else word for word in command]


def client_command(host: Host) -> list[str]:
    """Ssh and the options for a node such as `host`."""
    return ["ssh", "-T", *(word for name, value in _options(host).items() for word in ("-o", f"{name}={value}"))]


def _options(host: Host) -> dict[str, str]:
    """Among the cluster's nodes the cluster's own key, where there is one that we may read: a job must not
    depend on a person's agent, which may be gone tomorrow or offer more keys than sshd lets anybody try.
    """
    options = OPTIONS if host.port is None else {**OPTIONS, "Port": str(host.port)}
    if not host.name.startswith(WORKER_HOST_PREFIX):
        return options
    if os.access(CLUSTER_KEY_FILE, os.R_OK):
        options = {**options, "IdentityFile": CLUSTER_KEY_FILE, "IdentitiesOnly": "yes"}
    return {**options, **CLUSTER_OPTIONS}
