"""Pass a command from the process that ssh started to the runner's process that waits for it.

They use an abstract Unix socket (unix(7)), which disappears with its process. Both sides check the peer's user, as any
user of the machine can bind such a name.
"""

import os
import pwd
import socket
import subprocess
import time

from launcher.peer_credentials import is_same_user

RETRY_S = 0.05
MPIRUN_EXIT_TIMEOUT_S = 5.0
"""Seconds that mpirun may take to exit with the failed rank's exit code after one of its daemons failed."""
TAKEN = b"+"


def send_command(name: str, command: bytes, *, seconds: float) -> int:
    """Send `command` to the process that listens on the socket `name`; return 0 on success, else 1. Raises OSError."""
    with _connect(name, until=time.monotonic() + seconds) as connection:
        connection.sendall(command)
        connection.shutdown(socket.SHUT_WR)
        return 0 if connection.recv(1) == TAKEN else 1


def receive_command(name: str, *, seconds: float) -> str:
    """Listen on the socket `name` for a command from this user. Raises OSError, also if none arrives in time."""
    until = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        try:
            while True:
                if time.monotonic() > until:
                    raise TimeoutError
                listener.settimeout(max(RETRY_S, until - time.monotonic()))
                connection, _ = listener.accept()
                with connection:
                    if is_same_user(connection):
                        return _take(connection, until=until)
        except TimeoutError as error:
            raise TimeoutError(f"mpirun has sent no command within {seconds:g} s") from error


def run_command(command: str) -> int:
    """Run the command in the user's shell, as sshd does, and return its exit code.

    It stays in this process's group, which the runner signals.
    """
    shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    code = subprocess.run([shell, "-c", command], check=False).returncode
    if code:
        time.sleep(MPIRUN_EXIT_TIMEOUT_S)
    return 128 - code if code < 0 else code


def _take(connection: socket.socket, *, until: float) -> str:
    connection.settimeout(max(RETRY_S, until - time.monotonic()))
    command = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    connection.sendall(TAKEN)
    return command.decode(errors="surrogateescape")


def _connect(name: str, *, until: float) -> socket.socket:
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(max(RETRY_S, until - time.monotonic()))
        try:
            connection.connect(f"\0{name}")
        except (ConnectionRefusedError, BlockingIOError):
            # The socket does not listen yet, or its queue is full.
            connection.close()
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_S)
            continue
        if is_same_user(connection):
            return connection
        connection.close()
        raise PermissionError("another user's process waits there")
