"""Run commands on the master through one paramiko connection, so that dlcluster works without OpenSSH."""

import base64
import os
import select
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import paramiko
from paramiko.agent import AgentRequestHandler

from bootstrap.contract import SSH_PORT
from cli.errors import ClusterError
from cli.output import printable
from cli.ssh.config import CONNECT_TIMEOUT_S, KEEPALIVE_S
from cli.ssh.session_manager import PluginCall, session_socket

KEEPALIVE_TIMEOUT_S: Final = 60
"""Seconds of silence after which the master's connection counts as lost."""
READ_SIZE: Final = 1 << 15
MAX_ERROR_BYTES: Final = 1 << 16
"""Number of bytes of a failed command's stderr to keep."""
TAR_CHANGED: Final = 1
"""Exit code of GNU tar if a file changed while being read."""
KEY_HINT: Final = "is your key in the agent, ssh-add -l, or named with -i?"


@dataclass(frozen=True, kw_only=True, slots=True)
class SshTarget:
    """Login address, and the only accepted host key."""

    address: str
    user: str
    host_key: str
    identity: str | None
    port: int = SSH_PORT
    start_session: Callable[[], PluginCall] | None = None
    """Function that starts a session of Session Manager; None to connect to the address."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """Output and exit code of a command."""

    exit_code: int
    stdout: bytes
    stderr: str


class MasterConnection:
    """An SSH connection that runs commands, each on its own channel."""

    def __init__(self, transport: paramiko.Transport, *, address: str) -> None:
        self._transport = transport
        self._address = address

    def stream(self, command: str, *, stdout_fd: int, stderr_fd: int, forward_agent: bool = False) -> int:
        """Run a command, forward its output as it arrives, and return its exit code."""
        with self._channel(command, forward_agent=forward_agent) as channel:
            if forward_agent:
                channel.shutdown_write()
            _forward_output(channel, stdout_fd=stdout_fd, stderr_fd=stderr_fd)
            return self._exit_code(channel)

    def output(
        self,
        command: str,
        *,
        chunks: Iterable[bytes] = (),
        keep_stdin_open: bool = False,
        timeout_s: float | None = None,
    ) -> CommandResult:
        """Run a command with `chunks` as its standard input; return its output.

        With `keep_stdin_open`, its input then stays open until the connection ends (kill_on_disconnect). Raises
        ClusterError at the deadline: a frozen master acknowledges packets without answering.
        """
        with self._channel(command) as channel, self._timeout(timeout_s, channel):
            stdout, stderr = _StreamReader(channel.recv), _StreamReader(channel.recv_stderr, max_bytes=MAX_ERROR_BYTES)
            all_sent = _send(channel, chunks, ends=not keep_stdin_open)
            output, errors = stdout.read_all(), stderr.read_all().decode(errors="replace")
            done = CommandResult(stdout=output, stderr=errors, exit_code=self._exit_code(channel))
            if not (all_sent or done.exit_code):
                raise ClusterError("the command on the master ended before it had read its input")
            return done

    @contextmanager
    def read_tar(self, command: str, *, warn: Callable[[str], None]) -> Iterator[Any]:
        """Run tar; yield its standard output as a file. Raises ClusterError if it fails.

        If a file changed while tar read it, call `warn` with tar's message instead.
        """
        with self._channel(command) as channel:
            channel.shutdown_write()
            stderr = _StreamReader(channel.recv_stderr, max_bytes=MAX_ERROR_BYTES)
            yield channel.makefile("rb", READ_SIZE)
            message, code = first_line(stderr.read_all().decode(errors="replace")), self._exit_code(channel)
            if code == TAR_CHANGED and message:
                warn(message)
            elif code:
                raise ClusterError(message or "the command on the master failed")

    @contextmanager
    def running(self, command: str) -> Iterator[CommandResult]:
        """Run a command and yield its first line of output; close its standard input at the end of the block."""
        with self._channel(command) as channel:
            line = channel.makefile("rb").readline()
            stderr = "" if line else channel.makefile_stderr("rb").read(MAX_ERROR_BYTES).decode(errors="replace")
            yield CommandResult(exit_code=0 if line else self._exit_code(channel), stdout=line, stderr=stderr)

    @contextmanager
    def _channel(self, command: str, *, forward_agent: bool = False) -> Iterator[paramiko.Channel]:
        try:
            with closing(self._transport.open_session(timeout=CONNECT_TIMEOUT_S)) as channel, ExitStack() as forwarding:
                if forward_agent and agent_has_keys():
                    # Its threads must end before the connection does: paramiko's raise if they find it closed.
                    forwarding.callback(AgentRequestHandler(channel).close)
                channel.exec_command(command)
                yield channel
        except BrokenPipeError:
            raise  # the reader of our own output has left
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost() from error

    @contextmanager
    def _timeout(self, seconds: float | None, channel: paramiko.Channel) -> Iterator[None]:
        """Close the channel if the block takes longer, and raise ClusterError then."""
        if seconds is None:
            yield
            return
        end, timer = time.monotonic() + seconds, threading.Timer(seconds, channel.close)
        timer.start()
        try:
            yield
        except (ClusterError, paramiko.SSHException, OSError, EOFError) as error:
            if time.monotonic() < end:
                raise
            raise ClusterError(f"waited {seconds:.0f} s for a command on {self._address}, which did not end") from error
        finally:
            timer.cancel()

    def _exit_code(self, channel: paramiko.Channel) -> int:
        code = channel.recv_exit_status()
        if code < 0:
            raise self._lost()
        return code

    def _lost(self) -> ClusterError:
        return ClusterError(f"the connection to {self._address} was lost")


class _StreamReader(threading.Thread):
    """Thread that reads a channel's stream to its end: all streams share a window, so none may stay unread."""

    def __init__(self, receive: Callable[[int], bytes], *, max_bytes: int | None = None) -> None:
        super().__init__(daemon=True)
        self._receive, self._max_bytes = receive, max_bytes
        self._data = bytearray()
        self.start()

    def run(self) -> None:
        while data := self._receive(READ_SIZE):
            self._data += data if self._max_bytes is None else data[: self._max_bytes - len(self._data)]

    def read_all(self) -> bytes:
        """Return the complete stream, once it has ended."""
        self.join()
        return bytes(self._data)


def _send(channel: paramiko.Channel, chunks: Iterable[bytes], *, ends: bool) -> bool:
    """Send a command's input, and end it if so requested; return True if the command read it."""
    for chunk in chunks:
        try:
            channel.sendall(chunk)
        except OSError:  # the command has ended; its exit code explains more
            return False
    if ends:
        channel.shutdown_write()
    return True


@contextmanager
def open_connection(target: SshTarget) -> Iterator[MasterConnection]:
    """Log in, and yield the connection. Raises ClusterError."""
    with ExitStack() as opened:
        sock = opened.enter_context(session_socket(target.start_session())) if target.start_session else None
        client = opened.enter_context(paramiko.SSHClient())
        yield MasterConnection(_log_in(client, target, sock), address=target.address)


def run_command(target: SshTarget, command: str, *, stdout_fd: int, stderr_fd: int) -> int:
    """Run one command with the user's agent forwarded, forward its output, and return its exit code.

    The master needs no agent to reach the workers, because it has the cluster's key.
    """
    with open_connection(target) as connection:
        return connection.stream(command, stdout_fd=stdout_fd, stderr_fd=stderr_fd, forward_agent=True)


def kill_on_disconnect(command: Sequence[str]) -> str:
    """Return a shell line that runs a command and ends it when the connection closes; sshd itself would not."""
    wait_for_close = '{ cat <&3; kill "$job"; } >/dev/null 2>&1 & watch=$!'
    run = f"{shlex.join(command)} </dev/null 3<&- & job=$!"
    return f'exec 3<&0; {run}; {wait_for_close}; wait "$job"; code=$?; kill "$watch"; exit "$code"'


def first_line(text: str) -> str:
    """Return the first line that is not blank, without control characters."""
    return printable(next((line for line in text.splitlines() if line.strip()), ""))


def last_line(text: str) -> str:
    """Return the last line that is not blank, without control characters."""
    return first_line("\n".join(reversed(text.splitlines())))


def agent_has_keys() -> bool:
    """Return True if the agent has keys: without any, paramiko's forwarding fails in its own thread."""
    agent = paramiko.Agent()
    try:
        return bool(agent.get_keys())
    finally:
        agent.close()


def _log_in(client: paramiko.SSHClient, target: SshTarget, sock: socket.socket | None) -> paramiko.Transport:
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
            sock=sock,
        )
    except paramiko.BadHostKeyException as error:
        reason = "its host key is not the one in the cluster's table"
        raise ClusterError(f"refused to log in to {target.address}: {reason}") from error
    except (paramiko.SSHException, OSError, EOFError, ValueError) as error:  # ValueError: a file that is not a key
        hint = f" ({KEY_HINT})" if isinstance(error, paramiko.SSHException) else ""
        reason = str(error) or "the connection was closed"
        raise ClusterError(f"cannot log in to {target.user}@{target.address}: {reason}{hint}") from error
    transport = client.get_transport()
    if transport is None:
        raise ClusterError(f"the connection to {target.address} was lost")
    # If the master vanishes, paramiko ignores unanswered keepalives; the kernel and _watch detect it.
    transport.set_keepalive(KEEPALIVE_S)
    if sock is not None:
        threading.Thread(target=_watch, args=(transport,), daemon=True).start()
    elif hasattr(socket, "TCP_USER_TIMEOUT") and isinstance(transport.sock, socket.socket):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, KEEPALIVE_TIMEOUT_S * 1000)
    return transport


def _watch(transport: paramiko.Transport) -> None:
    """End a connection through Session Manager whose master no longer answers; its plugin would keep waiting."""
    while transport.is_active():
        overdue = threading.Timer(KEEPALIVE_TIMEOUT_S, transport.close)
        overdue.daemon = True
        overdue.start()
        with suppress(paramiko.SSHException, OSError, EOFError):
            transport.global_request("keepalive@openssh.com", wait=True)
        overdue.cancel()
        time.sleep(KEEPALIVE_S)


def _known_name(target: SshTarget) -> str:
    return target.address if target.port == SSH_PORT else f"[{target.address}]:{target.port}"


def _forward_output(channel: paramiko.Channel, *, stdout_fd: int, stderr_fd: int) -> None:
    """Forward both streams until the remote side has closed them."""
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
    while data:
        data = data[os.write(fd, data) :]
