"""List, enter and end every local AWS on this machine.

Each has a directory: ``owner`` and ``sandbox`` identify processes, ``run.json`` appears when its control plane
answers and contains what entering requires.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.cache import cache_dir
from local.errors import LocalError, UsageError
from local.run.processes import read_process

MARK_VARIABLE = "LOCAL_AWS_MARK"
"""Environment variable with four hex digits that start the name of every local AWS of a test run, so that leftovers
can be found."""
NAMESPACES = {"pid": "pid_for_children", "mount": "mnt", "net": "net", "ipc": "ipc", "uts": "uts"}
"""Namespaces of a sandbox by nsenter's option; unshare itself is in all of them except the process namespace."""
USER_PREFIXES = ("AWS_", "CDK_", "DLCLUSTER_", "SSH_")
"""Prefixes of variables that select the user's own accounts and agents, which must not reach the local AWS."""
STOP_TIMEOUT_S = 300.0
IN_CHECKOUT = ("sh", "-c", 'mount -n -o remount "$0"; cd "$0" && env --default-signal=INT "$@"; exit $?')
"""Command line that runs another one in the checkout.

The remount makes the overlay forget files that have been replaced outside (local.run.startup). The caller may ignore
SIGINT; the command does not. The shell waits for it, because nsenter returns 1 for a command that SIGINT has ended.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalAws:
    """One running local AWS."""

    directory: Path
    owner_pid: int
    """Process whose end ends the local AWS."""
    sandbox_pid: int
    """Process that keeps its namespaces open."""
    checkout: Path
    variables: Mapping[str, str]
    """Variables with which AWS clients reach it."""

    @property
    def name(self) -> str:
        return self.directory.name

    def command_inside(self, command: Sequence[str]) -> list[str]:
        """Build a command line that runs a command inside, in the checkout."""
        namespaces = [f"--{option}=/proc/{self.sandbox_pid}/ns/{file}" for option, file in NAMESPACES.items()]
        return ["nsenter", *namespaces, "--", *IN_CHECKOUT, str(self.checkout), *command]

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the caller's variables without those of their accounts and agents, plus those of the local AWS."""
        return {**without_user_variables(variables), **self.variables}


def without_user_variables(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not name.startswith(USER_PREFIXES)}


def runs_dir() -> Path:
    return cache_dir() / "run"


def new_name() -> str:
    """Return a name of eight hexadecimal digits."""
    return os.environ.get(MARK_VARIABLE, secrets.token_hex(2)) + secrets.token_hex(2)


def announce(run_dir: Path, *, checkout: Path, variables: Mapping[str, str]) -> None:
    """Publish what others need in order to enter a local AWS."""
    partial = run_dir / "run.json.partial"
    partial.write_text(json.dumps({"checkout": str(checkout), "variables": dict(variables)}))
    partial.rename(run_dir / "run.json")


def read_local_aws(directory: Path) -> LocalAws | None:
    """Read the local AWS of a directory; None if it is starting, ending or gone."""
    owner_pid, sandbox_pid = read_process(directory / "owner"), read_process(directory / "sandbox")
    try:
        run: Mapping[str, Any] = json.loads((directory / "run.json").read_text())
    except OSError:
        return None
    if owner_pid is None or sandbox_pid is None:
        return None
    return LocalAws(
        directory=directory,
        owner_pid=owner_pid,
        sandbox_pid=sandbox_pid,
        checkout=Path(run["checkout"]),
        variables=run["variables"],
    )


def list_local_aws() -> list[LocalAws]:
    """Return every local AWS that can be entered, oldest first."""
    directories = sorted(runs_dir().glob("*"), key=_made_at)
    return [local_aws for directory in directories if (local_aws := read_local_aws(directory))]


def live_names() -> list[str]:
    """Return the names of all with an owner, including those that cannot be entered yet."""
    return sorted(path.name for path in runs_dir().glob("*") if read_process(path / "owner") is not None)


def _made_at(directory: Path) -> float:
    try:
        return (directory / "owner").stat().st_mtime
    except OSError:  # It ended in the meantime.
        return 0.0


def find_local_aws(name: str | None) -> LocalAws:
    """Return the local AWS whose name starts with ``name``, or the only one. Raises LocalError."""
    running = list_local_aws()
    names = ", ".join(local_aws.name for local_aws in running) or "none"
    matching = [local_aws for local_aws in running if local_aws.name.startswith(name or "")]
    if len(matching) == 1:
        return matching[0]
    if name:
        raise UsageError(f"no unique match for {name!r}; running: {names}")
    if running:
        raise UsageError(f"several runs of the local AWS are up, name one (RUN=NAME with make): {names}")
    raise LocalError("no local AWS is up; make local-aws starts one")


def execute_inside(local_aws: LocalAws, command: Sequence[str]) -> int:
    """Run a command inside, on the caller's terminal; return its exit code."""
    entered = subprocess.run(local_aws.command_inside(command), env=local_aws.environment(os.environ), check=False)
    return entered.returncode if entered.returncode >= 0 else 128 - entered.returncode


def stop_local_aws(local_aws: LocalAws) -> None:
    """End a local AWS and wait until nothing is left of it. Raises LocalError."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(local_aws.owner_pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while local_aws.directory.exists():
        if time.monotonic() > deadline:
            raise LocalError(f"waited {STOP_TIMEOUT_S:.0f} s for local AWS {local_aws.name} to end")
        time.sleep(0.05)
