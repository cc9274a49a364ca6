"""Forward a port of this machine to a node through OpenSSH, and run a command there if one is given."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from cli.aws.nodes import ClusterNode
from cli.errors import ClusterError
from cli.ssh.config import (
    CONNECT_TIMEOUT_S,
    FORWARD_KEEPALIVES_UNANSWERED,
    KEEPALIVE_S,
    LoginSettings,
    ssh_arguments,
)

LOOPBACK: Final = "127.0.0.1"
POLL_S: Final = 0.05
ALIVE_OPTIONS: Final = (
    *("-o", f"ServerAliveInterval={KEEPALIVE_S}"),
    *("-o", f"ServerAliveCountMax={FORWARD_KEEPALIVES_UNANSWERED}"),
)
"""Options with which ssh gives up on a node that is silent for 45 s."""
NO_COMMAND: Final = ("-N",)
QUIET: Final = ("-o", "LogLevel=ERROR")
"""Options with which ssh does not report a refused forwarded connection."""


@contextmanager
def forwarding(
    access: LoginSettings,
    member: ClusterNode,
    *,
    here: int,
    port: int,
    command: Sequence[str] = (),
    is_quiet: bool = False,
) -> "Iterator[subprocess.Popen[bytes]]":
    """Yield the ssh process that forwards port `here` to the node's `port`; it ends with the block.

    With a command, its standard input and output are the process's pipes. `is_quiet` hides refused connections. Raises
    ClusterError if ssh cannot be run.
    """
    *options, destination = ssh_arguments(access, member)
    forward = ["-T", "-o", "ExitOnForwardFailure=yes", "-L", f"{LOOPBACK}:{here}:localhost:{port}", *ALIVE_OPTIONS]
    others = (*(QUIET if is_quiet else ()), *(() if command else NO_COMMAND))
    pipes = (subprocess.PIPE, subprocess.PIPE) if command else (subprocess.DEVNULL, None)
    try:
        process = subprocess.Popen(
            ["ssh", *options, *forward, *others, destination, *command], stdin=pipes[0], stdout=pipes[1]
        )
    except OSError as error:
        raise ClusterError(f"cannot run ssh: {error.strerror}") from error
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def free_port(*wanted: int) -> int:
    """Return the first wanted port that is free on this machine; 0 means any. Raises ClusterError."""
    for port in wanted:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Closed connections linger in TIME_WAIT.
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise ClusterError(f"port {wanted[0]} of this machine is in use: choose another with --local-port")


def wait_until_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait until ssh listens on the port. Raises ClusterError if it ends or takes too long."""
    if not poll(lambda: _accepts(port), process, timeout_s=2 * CONNECT_TIMEOUT_S):
        raise ClusterError(f"ssh did not connect within {2 * CONNECT_TIMEOUT_S} s")


def poll(is_ready: Callable[[], bool], process: "subprocess.Popen[bytes]", *, timeout_s: float) -> bool:
    """Wait until `is_ready` returns True; return False at the deadline. Raises ClusterError if ssh ends."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ClusterError("ssh could not make the tunnel; its reason is above")
        if is_ready():
            return True
        time.sleep(POLL_S)
    return False


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
