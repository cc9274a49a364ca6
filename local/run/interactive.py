"""Start, keep and enter a local AWS for interactive use.

The process that owns a run leads its own session, so the terminal's signals (Ctrl-C, hang-up) never reach it.
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
from local.run.processes import wait_for_end
from local.run.runs import END_TIMEOUT_S, Run, end_run, read_run, run_inside, runs_dir
from local.run.terminal import terminal_restored
from local.run.user import KEY_NAME, USER_SETTINGS

REPOSITORY = Path(__file__).parents[2]
START_TIMEOUT_S = 120.0
RUN_AND_HOLD = (sys.executable, "-m", "local", "run", "--", sys.executable, "-m", "local.run.keep_alive")
SHELL = ("bash", "--noprofile", "--rcfile", "local/bashrc", "-i")
KILLED = 128 + 9


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedRun:
    """A run that this process has started, with the process that owns it."""

    run: Run
    owner: subprocess.Popen[bytes]

    def end(self) -> None:
        """End a run that lasts as long as its starter, and wait until nothing is left."""
        if self.owner.stdin:
            self.owner.stdin.close()
        wait_for_end(self.owner, timeout_s=END_TIMEOUT_S)


def _name_of(owner: subprocess.Popen[bytes], errors: IO[bytes]) -> str:
    """Read the run's name, which the owner prints once the run can be entered. Raises LocalError."""
    assert owner.stdout is not None  # a pipe, as start_run created it
    ready, _, _ = select.select([owner.stdout], [], [], START_TIMEOUT_S)
    if not ready:
        raise LocalError(f"waited {START_TIMEOUT_S:.0f} s for the local AWS to start")
    if name := owner.stdout.readline().decode().strip():
        return name
    errors.seek(0)
    output = errors.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
    raise LocalError(f"the local AWS did not start: {output[-1].removeprefix('error: ')}")


def start_run(*, forever: bool) -> OwnedRun:
    """Start a run that can be entered. It ends with this process or, if ``forever``, only when ended explicitly."""
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
            run = read_run(runs_dir() / _name_of(owner, errors))
            if run is None:
                raise LocalError("the local AWS has ended while it started")
        except BaseException:
            owner.terminate()
            wait_for_end(owner, timeout_s=END_TIMEOUT_S)
            raise
    return OwnedRun(run=run, owner=owner)


@contextmanager
def started_run() -> Iterator[Run]:
    """Start a run that ends with the block."""
    started = start_run(forever=False)
    try:
        yield started.run
    finally:
        started.end()


def first_steps(run: Run) -> str:
    """List the commands to try first."""
    settings = " ".join(f"{name}={value}" for name, value in USER_SETTINGS.items())
    return f"""\
Local AWS {run.name}. The key pair {KEY_NAME!r} is in EC2 and in your SSH agent, your address is {USER_ADDRESS}.
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


def enter(run: Run, command: Sequence[str]) -> int:
    """Run a command inside, by default a shell whose exit code is ignored. Raises LocalError."""
    with terminal_restored():
        code = run_inside(run, command or SHELL)
    if code == KILLED and read_run(run.directory) is None:
        raise LocalError(f"local AWS {run.name} has ended")
    return code if command else 0


def shell() -> int:
    """Open a shell inside a fresh local AWS, which ends with the shell."""
    with started_run() as run:
        print(f"{first_steps(run)}Exiting this shell (exit, Ctrl-D) shuts the local AWS down.\n", flush=True)
        return enter(run, ())


def enter_running(run: Run, command: Sequence[str]) -> int:
    """Enter a local AWS that is already running, and leave it running."""
    if not command:
        print(f"{first_steps(run)}Leaving this shell leaves it up; make end RUN={run.name} ends it.\n", flush=True)
    return enter(run, command)


def keep(command: Sequence[str]) -> int:
    """Run a command inside a fresh local AWS and leave that running; Ctrl-C during the command ends it."""
    run = start_run(forever=True).run
    print(f"local AWS {run.name} is up", flush=True)
    try:
        code = enter(run, command)
    except KeyboardInterrupt:
        end_run(run)
        raise
    print(f"\nLocal AWS {run.name} is still up.\n  make enter RUN={run.name}\n  make end RUN={run.name}")
    return code
