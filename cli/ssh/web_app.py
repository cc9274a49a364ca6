"""Run a web application on the master while a command runs here, and reach it through a tunnel.

A single ssh carries the tunnel and the application's standard input. The first line of input is its secret; the
following empty lines are the command's heartbeats, because sshd itself would not notice a laptop that has lost its
network.
"""

import http.client
import shlex
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from bootstrap.contract import PYTORCH_PYTHON
from cli.cluster_context import look_up_context
from cli.errors import ClusterError
from cli.shared_options import Selection, invocation
from cli.ssh.access import resolve_access
from cli.ssh.browser import browser_option
from cli.ssh.forward import LOOPBACK, forwarding, free_port, poll, wait_until_listening
from cli.ssh.master import ssh_target
from cli.ssh.master_connection import last_line, open_connection

IMAGE_ENVIRONMENT: Final = PYTORCH_PYTHON.removesuffix("/bin/python")
START_TIMEOUT_S: Final = 180
"""Timeout for the application's first answer, in seconds; a new node first reads each of its files over the
network."""
HEARTBEAT_INTERVAL_S: Final = 15
"""Seconds between heartbeats."""
HEARTBEAT_TIMEOUT_S: Final = 60
"""Seconds without a heartbeat after which the application ends."""
GRACE_S: Final = 10
"""Seconds between SIGTERM and SIGKILL."""
PROBE_TIMEOUT_S: Final = 60
KEPT_LINES: Final = 20
WITHOUT_INTERNET: Final = "docs/use/environment.md#packages-without-internet"
NO_MODULE: Final = 3
"""Exit code of PROBE if the environment lacks the module."""
PROBE: Final = f"""\
import importlib.util, os, socket, sys
module, directory = sys.argv[1:]
if importlib.util.find_spec(module) is None:
    sys.exit({NO_MODULE})
with socket.socket() as probe:
    probe.bind(("{LOOPBACK}", 0))
    print(probe.getsockname()[1], int(os.path.isdir(directory)))
"""
PORTS: Final = click.IntRange(1, 65535)
Function = TypeVar("Function", bound=Callable[..., Any])


def web_app_options(function: Function) -> Function:
    """Add the options of commands that run a web application."""
    for option in (
        browser_option,
        click.option(
            "--local-port", metavar="PORT", type=PORTS, help="Port on this machine (the usual or a free one)."
        ),
        click.option("--venv", metavar="DIR", help=f"Python environment on the master ({IMAGE_ENVIRONMENT})."),
    ):
        function = option(function)
    return function


@dataclass(frozen=True, kw_only=True, slots=True)
class WebApp:
    """A Python module that serves HTTP."""

    module: str
    package: str
    """Package to install, pinned to the tested version."""
    arguments: Sequence[str]
    """Arguments; ``{port}`` is replaced by the port."""
    local_port: int
    """Preferred port on this machine."""
    directory: str = "."
    """Directory on the master that the application reads."""
    stdin_variable: str = "UNUSED"
    """Variable for the secret, which must not be on a command line, where every user of the node can read it."""
    secret: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningApp:
    """An application that answers requests."""

    address: str
    has_directory: bool
    """True if the log directory existed when the program started."""
    process: "subprocess.Popen[bytes]"
    output: "deque[str]"

    def wait(self) -> None:
        """Wait until the application or the connection ends, which raises ClusterError."""
        self.process.wait()
        printed = _newest(self.output)
        raise ClusterError(f"it ended on the master: {printed}" if printed else "the connection was lost")


@contextmanager
def run_app(selection: Selection, app: WebApp, *, venv: str | None, local_port: int | None) -> Iterator[RunningApp]:
    """Yield the application once it answers; it ends with the block. Raises ClusterError."""
    environment = venv or IMAGE_ENVIRONMENT
    context = look_up_context(selection)
    access = resolve_access(context)
    with open_connection(ssh_target(context)) as connection:
        line = shlex.join([f"{environment}/bin/python", "-c", PROBE, app.module, app.directory])
        done = connection.output(line, timeout_s=PROBE_TIMEOUT_S)
    port, has_directory = _parse_probe(done.exit_code, done.stdout, done.stderr, app, environment=environment)
    here = free_port(app.local_port, 0) if local_port is None else free_port(local_port)
    arguments = [word.format(port=port) for word in app.arguments]
    command = shlex.join(["bash", "-c", app_script(), "bash", environment, app.stdin_variable, *arguments])
    with forwarding(access, access.master, here=here, port=port, command=[command], is_quiet=True) as process:
        output = _start(process, app.secret)
        wait_until_listening(process, here)
        try:
            answers = poll(lambda: _answers(here), process, timeout_s=START_TIMEOUT_S)
        except ClusterError as error:
            raise ClusterError(f"{app.module} did not start: {_newest(output) or error}") from error
        if not answers:
            raise ClusterError(f"{app.module} did not answer within {START_TIMEOUT_S} s")
        address = f"http://{LOOPBACK}:{here}/"
        yield RunningApp(address=address, has_directory=has_directory, process=process, output=output)


def app_script(*, heartbeat_timeout_s: int = HEARTBEAT_TIMEOUT_S, grace_s: int = GRACE_S) -> str:
    """Return a script for bash with the arguments environment, variable for the secret, and Python's arguments.

    It ends Python and its children when its standard input ends or is silent for `heartbeat_timeout_s` seconds.
    """
    return f"""\
venv=$(cd -- "$1" && pwd) && read -r -t {heartbeat_timeout_s} "$2" || exit
export "$2" PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv"
shift 2
exec 3<&0 </dev/null 2>&1
setsid "$venv/bin/python" "$@" 3<&- & app=$!
{{
    while read -r -t {heartbeat_timeout_s} _ <&3; do :; done
    until kill -- "-$app"; do kill -0 "$app" || exit; sleep 0.1; done
    sleep {grace_s} && kill -KILL -- "-$app"
}} >/dev/null 2>&1 &
wait "$app"
"""


def _parse_probe(code: int, stdout: bytes, stderr: str, app: WebApp, *, environment: str) -> tuple[int, bool]:
    """Return a free port of the master, and True if the directory exists."""
    if code == NO_MODULE:
        # The image's environment is root's, or may be; another one is the user's.
        sudo = "sudo " if environment == IMAGE_ENVIRONMENT else ""
        install = f"{invocation()} ssh -- {sudo}{environment}/bin/python -m pip install {app.package}"
        raise ClusterError(
            f"{environment} on the master has no {app.module}; install it with {install}, "
            f"or choose another environment with --venv; {WITHOUT_INTERNET} is for nodes without internet"
        )
    if code:
        reason = last_line(stderr) or f"exit code {code}"
        raise ClusterError(f"cannot run {environment}/bin/python on the master: {reason}")
    words = stdout.decode(errors="replace").split()
    if len(words) != 2 or not words[0].isdecimal() or not 0 < int(words[0]) < 1 << 16:
        raise ClusterError(
            f"the master should print a free port, got {stdout[:80]!r}; its shell start-up files must print nothing"
        )
    return int(words[0]), words[1] == "1"


def _start(process: "subprocess.Popen[bytes]", secret: str) -> "deque[str]":
    """Send the secret and the heartbeats; return a deque with the application's newest output lines."""
    output: deque[str] = deque(maxlen=KEPT_LINES)

    def keep_lines() -> None:
        assert process.stdout is not None
        with suppress(ValueError):  # the command has closed the pipe
            for line in process.stdout:
                output.append(line.decode(errors="replace"))

    def say_alive() -> None:
        assert process.stdin is not None
        line = f"{secret}\n".encode()
        while process.poll() is None:
            try:
                process.stdin.write(line)
                process.stdin.flush()
            except (OSError, ValueError):  # ssh has ended, or the command has closed the pipe
                return
            line = b"\n"
            ended.wait(HEARTBEAT_INTERVAL_S)

    ended = threading.Event()
    for work in (keep_lines, say_alive):
        threading.Thread(target=work, daemon=True).start()
    return output


def _newest(output: Iterable[str]) -> str:
    return last_line("\n".join(output))


def _answers(port: int) -> bool:
    """Return True if the application answers a request with any status."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=10)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
