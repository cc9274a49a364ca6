"""Start, keep and enter a local AWS for interactive use.

The process that owns a local AWS leads its own session, so the terminal's signals (Ctrl-C, hang-up) never reach it.
"""

import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from local.errors import LocalError
from local.network.addresses import USER_ADDRESS
from local.run.local_aws import STOP_TIMEOUT_S, LocalAws, execute_inside, read_local_aws, runs_dir, stop_local_aws
from local.run.processes import wait_for_exit
from local.run.terminal import sigint_ignored, terminal_restored
from local.run.user import KEY_NAME, USER_SETTINGS

REPOSITORY = Path(__file__).parents[2]
START_TIMEOUT_S = 120.0
RUN_AND_HOLD = (sys.executable, "-m", "local", "run", "--", sys.executable, "-m", "local.run.keep_alive")
SHELL = ("bash", "--noprofile", "--rcfile", "local/bashrc", "-i")
KILLED = 128 + 9


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedLocalAws:
    """A local AWS that this process has started, with the process that owns it."""

    local_aws: LocalAws
    owner: subprocess.Popen[bytes]

    def end(self) -> None:
        """End a local AWS that lasts as long as its starter, and wait until nothing is left."""
        if self.owner.stdin:
            self.owner.stdin.close()
        wait_for_exit(self.owner, timeout_s=STOP_TIMEOUT_S)


def _read_name(owner: subprocess.Popen[bytes], errors: IO[bytes]) -> str:
    """Read the local AWS's name, which the owner prints once it can be entered. Raises LocalError."""
    assert owner.stdout is not None  # a pipe, as start_local_aws created it
    ready, _, _ = select.select([owner.stdout], [], [], START_TIMEOUT_S)
    if not ready:
        raise LocalError(f"waited {START_TIMEOUT_S:.0f} s for the local AWS to start")
    if name := owner.stdout.readline().decode().strip():
        return name
    errors.seek(0)
    output = errors.read().decode(errors="replace").strip().splitlines() or ["no output"]
    raise LocalError(f"the local AWS did not start: {output[-1].removeprefix('error: ')}")


def start_local_aws(*, forever: bool) -> OwnedLocalAws:
    """Start a local AWS. It ends with this process or, if ``forever``, only when ended explicitly."""
    with tempfile.TemporaryFile() as errors:
        owner = subprocess.Popen(
            [*RUN_AND_HOLD, *(["--forever"] if forever else [])],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL if forever else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        try:
            local_aws = read_local_aws(runs_dir() / _read_name(owner, errors))
            if local_aws is None:
                raise LocalError("the local AWS has ended while it started")
        except BaseException:
            owner.terminate()
            wait_for_exit(owner, timeout_s=STOP_TIMEOUT_S)
            raise
    return OwnedLocalAws(local_aws=local_aws, owner=owner)


@contextmanager
def temporary_local_aws() -> Iterator[LocalAws]:
    """Start a local AWS that ends with the block."""
    started = start_local_aws(forever=False)
    try:
        yield started.local_aws
    finally:
        started.end()


def first_steps(local_aws: LocalAws) -> str:
    """List the commands to try first."""
    settings = " ".join(f"{name}={value}" for name, value in USER_SETTINGS.items())
    return f"""\
Local AWS {local_aws.name}. The key pair {KEY_NAME!r} is in EC2 and in your SSH agent, your address is {USER_ADDRESS}.
~/.cdk.json has settings for here: {settings}
They come before those in cdk.json's "cluster" object; -c name=value comes before both.

  cdk bootstrap
  cdk deploy -c worker_count=2
  (cd examples && dlcluster run -- torchrun_ddp.py)   a job on all nodes
  dlcluster ssh                          or: dlcluster ssh-config >> ~/.ssh/config; ssh -A deeplearning-master
  cdk deploy -c worker_count=4
  local-aws status                       the instances; watch them with: watch local-aws status
  cdk destroy

What you write here, in the checkout too, stays in this local AWS.
"""


def enter(local_aws: LocalAws, command: Sequence[str]) -> int:
    """Run a command inside, by default a shell whose exit code is ignored. Raises LocalError."""
    with terminal_restored():
        code = execute_inside(local_aws, command or SHELL)
    if code == KILLED and read_local_aws(local_aws.directory) is None:
        raise LocalError(f"local AWS {local_aws.name} has ended")
    return code if command else 0


def shell() -> int:
    """Open a shell inside a fresh local AWS, which ends with the shell."""
    with temporary_local_aws() as local_aws:
        print(f"{first_steps(local_aws)}Exiting this shell (exit, Ctrl-D) shuts the local AWS down.\n", flush=True)
        return enter(local_aws, ())


def enter_running(local_aws: LocalAws, command: Sequence[str]) -> int:
    """Enter a local AWS that is already running, and leave it running; Ctrl-C is for the command."""
    if not command:
        print(
            f"{first_steps(local_aws)}Leaving this shell leaves it up; make end RUN={local_aws.name} ends it.\n",
            flush=True,
        )
    with sigint_ignored():
        return enter(local_aws, command)


def keep(command: Sequence[str]) -> int:
    """Run a command inside a fresh local AWS and leave that running; Ctrl-C during the command ends it."""
    local_aws = start_local_aws(forever=True).local_aws
    print(f"local AWS {local_aws.name} is up", flush=True)
    try:
        code = enter(local_aws, command)
    except KeyboardInterrupt:
        stop_local_aws(local_aws)
        raise
    print(
        f"\nLocal AWS {local_aws.name} is still up.\n  make enter RUN={local_aws.name}\n  make end RUN={local_aws.name}"
    )
    return code
