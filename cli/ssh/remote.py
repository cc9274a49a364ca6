"""Runs one command on the master through paramiko: no OpenSSH needed where dlcluster runs."""

import base64
import os
import select
import socket
from dataclasses import dataclass

import paramiko
from paramiko.agent import AgentRequestHandler

from bootstrap.contract import SSH_PORT
from cli.errors import ClusterError

CONNECT_TIMEOUT_S = 15.0
KEEPALIVE_S = 15
SILENCE_MS = 60_000
READ_SIZE = 1 << 15
KEY_HINT = "is your key in the agent, ssh-add -l, or named with -i?"


@dataclass(frozen=True, kw_only=True, slots=True)
class SshTarget:
    """Where to log in, and the one host key to accept there."""

    address: str
    user: str
    host_key: str
    identity: str | None
    port: int = SSH_PORT


def run_command(target: SshTarget, command: str, *, stdout_fd: int, stderr_fd: int) -> int:
    """Run `command` with the user's agent forwarded; its output streams, its exit code is returned.

    The master needs no agent to reach the workers: it has the cluster's own key.
    """
    lost = ClusterError(f"the connection to {target.address} was lost")
    with paramiko.SSHClient() as client:
        try:
            channel = _log_in(client, target).open_session(timeout=CONNECT_TIMEOUT_S)
            if agent_has_keys():
                AgentRequestHandler(channel)
            channel.exec_command(command)
            channel.shutdown_write()
            _stream(channel, stdout_fd=stdout_fd, stderr_fd=stderr_fd)
        except (paramiko.SSHException, EOFError) as error:
            raise lost from error
        code = channel.recv_exit_status()
    if code < 0:
        raise lost
    return code


def agent_has_keys() -> bool:
    """Whether there is anything to forward; paramiko's forwarding fails in a thread of its own."""
    agent = paramiko.Agent()
    try:
        return bool(agent.get_keys())
    finally:
        agent.close()


def _log_in(client: paramiko.SSHClient, target: SshTarget) -> paramiko.Transport:
    key_type, data = target.host_key.split()[:2]
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        key = paramiko.Ed25519Key(data=base64.b64decode(data))
        client.get_host_keys().add(_known_name(target), key_type, key)
        client.connect(
            target.address,
            port=target.port,
            username=target.user,
            key_filename=target.identity,
            look_for_keys=target.identity is None,
            timeout=CONNECT_TIMEOUT_S,
            banner_timeout=CONNECT_TIMEOUT_S,
            auth_timeout=CONNECT_TIMEOUT_S,
        )
    except paramiko.BadHostKeyException as error:
        reason = "its host key is not the one in the cluster's table"
        raise ClusterError(f"refused to log in to {target.address}: {reason}") from error
    except (paramiko.SSHException, OSError, ValueError) as error:  # the last for a key that is none
        hint = f" ({KEY_HINT})" if isinstance(error, paramiko.SSHException) else ""
        raise ClusterError(f"cannot log in to {target.user}@{target.address}: {error}{hint}") from error
    transport = client.get_transport()
    if transport is None:
        raise ClusterError(f"the connection to {target.address} was lost")
    transport.set_keepalive(KEEPALIVE_S)
    if hasattr(socket, "TCP_USER_TIMEOUT") and isinstance(transport.sock, socket.socket):
        # A master that vanished: paramiko never misses the answers to its keepalives, the kernel does.
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    return transport


def _known_name(target: SshTarget) -> str:
    return target.address if target.port == SSH_PORT else f"[{target.address}]:{target.port}"


def _stream(channel: paramiko.Channel, *, stdout_fd: int, stderr_fd: int) -> None:
    """Pass on both streams until the remote side has closed them."""
    while True:
        select.select([channel], [], [])
        while channel.recv_ready():
            _write_all(stdout_fd, channel.recv(READ_SIZE))
        while channel.recv_stderr_ready():
            _write_all(stderr_fd, channel.recv_stderr(READ_SIZE))
        ended = channel.eof_received or channel.closed
        if ended and not channel.recv_ready() and not channel.recv_stderr_ready():
            return


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
