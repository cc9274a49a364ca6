"""Act like a user at their own machine: a key in their own SSH agent, and the commands that they type.

The demo and the end-to-end tests use this, so that both do what the README says and nothing else.
"""

import logging
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3

from local.network.addresses import USER_ADDRESS

log = logging.getLogger(__name__)
KEY_NAME = "demo"
USER_SETTINGS = {"instance_type": "c5.large", "key_name": KEY_NAME, "ssh_location": f"{USER_ADDRESS}/32"}
"""Settings of this user's clusters: CPU nodes, logins from the user's address only."""
DEPLOY_TIMEOUT_S = 900
COMMAND_TIMEOUT_S = 600
AGENT_TIMEOUT_S = 60
"""Seconds for ssh-agent to start and to end, which take a busy machine longer than they need."""


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    """A user's AWS account, key pair and SSH agent."""

    environment: Mapping[str, str]
    ssh_config: Path

    def run(self, *command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        """Run a command and forward its output. Raises CalledProcessError and TimeoutExpired."""
        subprocess.run(command, env=dict(self.environment), check=True, timeout=timeout_s, stdin=subprocess.DEVNULL)

    def output(self, *command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Return a command's standard output. Raises CalledProcessError and TimeoutExpired."""
        return subprocess.run(
            command,
            env=dict(self.environment),
            check=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def cdk(self, *arguments: str) -> None:
        self.run("cdk", *arguments, timeout_s=DEPLOY_TIMEOUT_S)

    def write_ssh_config(self) -> None:
        """Write the output of dlcluster ssh-config to a file for ssh, as the README says."""
        self.ssh_config.write_text(self.output("dlcluster", "ssh-config"))

    def ssh_command(self, host: str, *command: str, options: Sequence[str] = ()) -> Sequence[str]:
        return ["ssh", "-A", "-F", str(self.ssh_config), *options, host, *command]

    def ssh(self, host: str, *command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Return the standard output of a command on a node. Raises CalledProcessError and TimeoutExpired."""
        return self.output(*self.ssh_command(host, *command), timeout_s=timeout_s)


def deploy_arguments(*, nodes: int) -> list[str]:
    """Return the arguments of the demo's ``cdk deploy``."""
    settings = {"worker_count": str(nodes - 1), **USER_SETTINGS}
    context = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
    return ["deploy", "--require-approval", "never", *context]


@contextmanager
def session_user() -> Iterator[User]:
    """Yield the user of a local AWS kept for interactive use; the key and the agent already exist, and stay."""
    yield User(environment=dict(os.environ), ssh_config=Path.home() / ".ssh/config")


@contextmanager
def temporary_user() -> Iterator[User]:
    """Yield a user with a new key pair (imported into EC2) and an SSH agent; both are removed at the end."""
    directory = Path("/run/user-of-the-demo")
    directory.mkdir(mode=0o700)
    key, agent_socket = directory / "id_ed25519", directory / "agent.sock"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", KEY_NAME, "-f", key], check=True)
    ec2 = boto3.client("ec2")
    ec2.import_key_pair(KeyName=KEY_NAME, PublicKeyMaterial=key.with_suffix(".pub").read_bytes())
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", agent_socket], stdout=subprocess.DEVNULL)
    try:
        environment = {**os.environ, "SSH_AUTH_SOCK": str(agent_socket)}
        _add_key(key, environment=environment, agent_socket=agent_socket)
        yield User(environment=environment, ssh_config=directory / "config")
    finally:
        agent.terminate()
        agent.wait(timeout=AGENT_TIMEOUT_S)
        ec2.delete_key_pair(KeyName=KEY_NAME)
        shutil.rmtree(directory)


def _add_key(key: Path, *, environment: Mapping[str, str], agent_socket: Path) -> None:
    deadline = time.monotonic() + AGENT_TIMEOUT_S
    while not _is_listened_to(agent_socket):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {AGENT_TIMEOUT_S} s for ssh-agent to listen at {agent_socket}")
        time.sleep(0.02)
    subprocess.run(["ssh-add", "-q", key], env=dict(environment), check=True)


def _is_listened_to(path: Path) -> bool:
    """Return True if a socket accepts connections; its file exists earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
