"""Reach a node's SSH port through Systems Manager: start a session, and run AWS's plugin, which carries it.

The plugin connects its standard input and output to port 22 of the node, over the connection that the node's SSM agent
keeps to AWS. Its arguments are those of awscli/customizations/sessionmanager.py in aws/aws-cli.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, Final

from bootstrap.contract import SSH_PORT
from cli.aws.clients import Clients
from cli.errors import ClusterError
from cli.ssh.config import CONNECT_TIMEOUT_S

PLUGIN: Final = "session-manager-plugin"
DOCUMENT: Final = "AWS-StartSSHSession"
"""AWS's document for sessions that carry SSH; users' policies name it."""
RESPONSE_VARIABLE: Final = "AWS_SSM_START_SESSION_RESPONSE"
LAST_WITHOUT_VARIABLE: Final = (1, 2, 497, 0)
"""Last version of the plugin that accepts the session's token only as an argument, which all users of the machine
see."""
INSTALL_URL: Final = (
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
)
CONNECTED_TIMEOUT_S: Final = 10
"""Seconds to wait for the SSM agent of a new node; ssh's own timeout is longer (cli.ssh.config)."""
VERSION_TIMEOUT_S: Final = 20
END_TIMEOUT_S: Final = 5
OPENED_LINE: Final = re.compile(rb"^Starting session with SessionId:.*$", re.MULTILINE)
"""Matches the line that the plugin prints once it has opened a session; it explains no failure."""
SERVER_LINE: Final = b"SSH-"
"""Beginning of the SSH server's first line (RFC 4253, 4.2)."""
MAX_PEEKED: Final = 1 << 16
"""Maximum number of bytes to read before the server's first line."""
POLL_S: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginCall:
    """Command line and environment of the plugin, for one session."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def start_session(clients: Clients, instance_id: str) -> PluginCall:
    """Start a session to a node's SSH port. Raises ClusterError."""
    plugin = _find_plugin()
    ssm = clients.ssm
    port = {"portNumber": [str(SSH_PORT)]}
    request = {"Target": instance_id, "DocumentName": DOCUMENT, "Parameters": port}
    deadline = time.monotonic() + CONNECTED_TIMEOUT_S
    while True:
        try:
            answer = ssm.start_session(Target=instance_id, DocumentName=DOCUMENT, Parameters=port)
            break
        except ssm.exceptions.TargetNotConnected as error:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{instance_id} is not connected to Session Manager after {CONNECTED_TIMEOUT_S} s: a new node "
                    "connects within minutes if its network reaches ssm and ssmmessages (see dlcluster preflight)"
                ) from error
            time.sleep(1)
    # The token opens the node's port, so pass it in the environment, which no other user of this machine can read.
    response = json.dumps({name: answer.get(name, "") for name in ("SessionId", "TokenValue", "StreamUrl")})
    endpoint = ssm.meta.endpoint_url
    return PluginCall(
        command=(plugin, RESPONSE_VARIABLE, clients.region, "StartSession", "", json.dumps(request), endpoint),
        environment={**os.environ, RESPONSE_VARIABLE: response},
    )


def _find_plugin() -> str:
    """Return the plugin's path; check it before a session starts, because only the plugin could use or end that."""
    path = shutil.which(PLUGIN)
    if path is None:
        raise ClusterError(f"{PLUGIN} is not installed; logins to a private cluster need it: {INSTALL_URL}")
    try:
        output = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"cannot run {path}: {error}") from error
    version = output.strip()
    if not re.fullmatch(r"\d+(\.\d+){0,3}", version):
        raise ClusterError(f"{path} --version must print a version, got {version[:60]!r}: {INSTALL_URL}")
    if tuple(map(int, version.split("."))) <= LAST_WITHOUT_VARIABLE:
        needed = ".".join(map(str, LAST_WITHOUT_VARIABLE))
        raise ClusterError(f"{PLUGIN} must be newer than {needed}, got {version}: {INSTALL_URL}")
    return path


class PluginSession:
    """A running plugin, with our end of its standard input and output."""

    def __init__(self, call: PluginCall, *, errors: BinaryIO) -> None:
        self.socket, theirs = socket.socketpair()
        self._printed = b""
        self._errors = errors
        with theirs:
            fd = theirs.fileno()
            self._process = subprocess.Popen(
                call.command,
                env=dict(call.environment),
                stdin=fd,
                stdout=fd,
                stderr=errors,
                # Ctrl-C and Ctrl-Z on the terminal would make the plugin end the session.
                start_new_session=True,
            )

    def wait_for_server(self) -> None:
        """Discard the plugin's output before the SSH server's first line, for which paramiko waits only two seconds.

        Raises ClusterError if no server answers in time.
        """
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                ahead = self.socket.recv(MAX_PEEKED, socket.MSG_PEEK)
            except TimeoutError:
                break
            ended = not ahead or self._process.poll() is not None
            start = ahead.find(SERVER_LINE)
            discarded = start if start >= 0 else max(0, len(ahead) - len(SERVER_LINE) + 1)
            self._printed += self.socket.recv(discarded) if discarded else b""
            if start >= 0:
                self.socket.settimeout(None)
                return
            if ended and not discarded:
                self._printed += ahead
                raise ClusterError("the session ended before the node's SSH server answered")
            if not discarded:
                time.sleep(POLL_S)  # only the first bytes of the line may have arrived
        raise ClusterError(f"the node's SSH server did not answer through the session within {CONNECT_TIMEOUT_S} s")

    def end(self) -> str:
        """End the plugin and return its failures, which it prints on either stream, without the SSH stream."""
        self.socket.close()
        self._process.terminate()
        try:
            self._process.wait(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.seek(0)
        return OPENED_LINE.sub(b"", self._printed + self._errors.read()).decode(errors="replace")


@contextmanager
def session_socket(call: PluginCall) -> Iterator[socket.socket]:
    """Yield a socket connected to the node's SSH port. An error contains the plugin's own reason, if any."""
    with tempfile.TemporaryFile() as errors:
        try:
            session = PluginSession(call, errors=errors)
        except OSError as error:
            raise ClusterError(f"cannot run {call.command[0]}: {error.strerror}") from error
        try:
            session.wait_for_server()
            yield session.socket
        except ClusterError as error:
            reason = " ".join(session.end().split())
            if not reason:
                raise
            raise ClusterError(f"{error} ({PLUGIN}: {reason[:200]})") from error
        except BaseException:
            session.end()
            raise
        else:
            session.end()
