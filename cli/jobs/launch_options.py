"""Define the options of ``launch`` that ``dlcluster run`` also accepts, and check them before anything is sent.

tests/cli/jobs/test_launch_options.py checks that launch's own parser accepts them all.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from bootstrap.contract import JOB_NAME_FORM, JOB_NAME_PATTERN, MAX_GRACE_S, SECRETS_FORMS, SECRETS_PATTERN
from cli.errors import UsageError
from cli.jobs.unsupported_options import PROCESSES

Function = TypeVar("Function", bound=Callable[..., Any])
OVERWRITE: Final = "--sync-overwrite"
NNODES_OPTIONS: Final = ("-n", "--nnodes", "--num-workers")
TYPED_NNODES_OPTION: Final = "typed_nnodes_option"
"""Key of click's context for the spelling that the user typed."""
SECRET: Final = rf"[A-Za-z_][A-Za-z0-9_]*=(?:{SECRETS_PATTERN})"
VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:[=:](.*))?", re.ASCII | re.DOTALL)
"""Matches KEY=VALUE, KEY:VALUE and KEY."""
ASSIGNED: Final = re.compile("[=:]")
"""Matches what separates a name from its value."""
STEERS_SHELL: Final = re.compile("PATH|HOME|IFS|UID|EUID|PPID|PWD|SHELLOPTS|BASH.*|LD_.*|XDG_RUNTIME_DIR", re.ASCII)
"""Matches variables that change how the master's shell finds or runs the launcher, or that it does not accept."""
UNSENDABLE: Final = frozenset("\n\0")
"""Characters that end a value on its way to the master."""


def typed_nnodes_option() -> str:
    """Return how the user has spelled -n on the running command line, for messages about it."""
    context = click.get_current_context(silent=True)
    return NNODES_OPTIONS[0] if context is None else context.meta.get(TYPED_NNODES_OPTION, NNODES_OPTIONS[0])


def record_typed_nnodes_option(ctx: click.Context, args: Sequence[str]) -> None:
    """Record the first spelling of -n in the arguments; those of the command come after the options."""
    names = (word[: len("-n")] if word.startswith("-n") else word.partition("=")[0].replace("_", "-") for word in args)
    ctx.meta[TYPED_NNODES_OPTION] = next((name for name in names if name in NNODES_OPTIONS), NNODES_OPTIONS[0])


class NodeCount(click.IntRange):
    """Number of nodes; explains what torchrun and mpirun write in its place."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises UsageError for MIN:MAX, and for the rest of ``-np4``."""
        if isinstance(value, str) and ":" in value:
            fewer = f"dlcluster push, then dlcluster run -- launch --nnodes {value} --max-restarts 3 ..."
            name = typed_nnodes_option()
            raise UsageError(f"{name} must be one number, got {value!r}; to restart a lost job on fewer nodes: {fewer}")
        if isinstance(value, str) and value.startswith("p"):
            raise UsageError(f"no such option '-n{value}': {PROCESSES}, -n the number of nodes")
        if isinstance(value, str) and value[:1].isalpha():
            raise UsageError(f"{typed_nnodes_option()} is the number of nodes, got {value!r}; --name names the job")
        return super().convert(value, param, ctx)


overwrite_option = click.option(
    OVERWRITE, is_flag=True, help="Overwrite files that were changed on a node since they were sent."
)
DECORATORS: Final = (
    overwrite_option,
    click.option(
        *NNODES_OPTIONS,
        "nnodes",
        metavar="N",
        type=NodeCount(1),
        help="Number of nodes, the master included (default: all).",
    ),
    click.option(
        "--nproc-per-node", metavar="K", help="Processes per node; also gpu, cpu, auto (one per GPU, else 1)."
    ),
    click.option(
        "--env",
        metavar="KEY=VALUE",
        multiple=True,
        help="Variable for every process; KEY alone passes on this shell's value, hidden from process lists.",
    ),
    click.option(
        "--secret", metavar="KEY=SOURCE", multiple=True, help=f"Variable that each node reads from {SECRETS_FORMS}."
    ),
    click.option(
        "--venv",
        metavar="DIR",
        help="Python environment on every node to run with; a relative DIR is in the home directory there.",
    ),
    click.option(
        "--max-restarts", metavar="R", type=click.IntRange(0), help="Restart a failed job up to R times (default: 0)."
    ),
    click.option(
        "--grace",
        metavar="SECONDS",
        type=click.IntRange(1, MAX_GRACE_S),
        help=f"Seconds between TERM and KILL, to save, at most {MAX_GRACE_S} (default: 10).",
    ),
    click.option(
        "--durable",
        is_flag=True,
        help="Store the job in the bucket, so that it resumes after a pause or the loss of the master.",
    ),
    click.option("--wait", is_flag=True, help="Queue until the nodes and their GPUs are free; see dlcluster jobs."),
    click.option(
        "--wait-timeout",
        metavar="T",
        help="Longest time in the queue, such as 90m, 24h or 7d (default: 24h; no limit with --durable).",
    ),
    click.option("--force", is_flag=True, help="Start even on GPUs in use, or if nodes differ in EFA or setup."),
    click.option("--name", metavar="NAME", help="Name of the job, for dlcluster jobs, logs and stop."),
)


def add_launch_options(function: Function) -> Function:
    """Add the options to a command, as the fields of LaunchOptions."""
    for decorator in reversed(DECORATORS):
        function = decorator(function)
    return function


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOptions:
    """Launcher options that ``dlcluster run`` also accepts."""

    nnodes: int | None = None
    nproc_per_node: str | None = None
    env: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    venv: str | None = None
    max_restarts: int | None = None
    grace: int | None = None
    durable: bool = False
    wait: bool = False
    wait_timeout: str | None = None
    force: bool = False
    name: str | None = None
    sync_overwrite: bool = False

    def check(self, environ: Mapping[str, str]) -> None:
        """Raise UsageError now for what the launcher would refuse only after the files are sent."""
        for item in self.env:
            self._check_variable(item, environ)
        for item in self.secret:
            if not re.fullmatch(SECRET, item, re.ASCII):
                # The user may have typed the value itself: do not print it.
                raise UsageError(f"--secret must be KEY=SOURCE, where SOURCE is {SECRETS_FORMS}")
        if self.force and self.wait:
            raise UsageError("--wait waits for GPUs in use and cannot be combined with --force, which takes them")
        if self.name is not None and not re.fullmatch(JOB_NAME_PATTERN, self.name):
            raise UsageError(f"--name must be {JOB_NAME_FORM}, got {self.name[:80]!r}")

    def _check_variable(self, item: str, environ: Mapping[str, str]) -> None:
        match = VARIABLE.fullmatch(item)
        if match is None:
            # The value may be secret: do not print it.
            raise UsageError(
                f"--env must be KEY=VALUE or KEY, got the key {ASSIGNED.split(item, maxsplit=1)[0][:80]!r}"
            )
        key, value = match.groups()
        if value is not None:
            return
        if STEERS_SHELL.fullmatch(key):
            raise UsageError(f"--env {key} would change the launcher's own shell on the master: give --env {key}=VALUE")
        if self.durable:
            raise UsageError(
                f"--durable cannot store --env {key}, whose value only this shell has: give --env {key}=VALUE, "
                "or have the nodes read it (--secret)"
            )
        if key not in environ:
            raise UsageError(f"--env {key} passes on a variable that is not set here")
        if UNSENDABLE.intersection(environ[key]):
            raise UsageError(f"--env {key} passes on only one line, and the value of {key} has several")

    def forwarded_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return this shell's variables to pass on by ``--env KEY``."""
        return {item: environ[item] for item in self.env if not ASSIGNED.search(item)}

    def to_args(self) -> list[str]:
        """Return the options as arguments for the launcher."""
        given = {
            "-n": self.nnodes,
            "--nproc-per-node": self.nproc_per_node,
            "--venv": None if self.venv is None else _on_nodes(self.venv),
            "--max-restarts": self.max_restarts,
            "--grace": self.grace,
            "--wait-timeout": self.wait_timeout,
            "--name": self.name,
        }
        # A launcher of an earlier release knows only the colon.
        lists = {"--env": [ASSIGNED.sub(":", item, count=1) for item in self.env], "--secret": self.secret}
        flags = {
            "--durable": self.durable,
            "--wait": self.wait,
            "--force": self.force,
            OVERWRITE: self.sync_overwrite,
        }
        args = [arg for name, value in given.items() if value is not None for arg in (name, str(value))]
        args += [arg for name, items in lists.items() for item in items for arg in (name, item)]
        return [*args, *(name for name, is_given in flags.items() if is_given)]


def _on_nodes(directory: str) -> str:
    """Return a directory for the nodes: the shell here has turned ``~/env`` into a path in this machine's home."""
    path, home = Path(directory), Path.home()
    return str(path.relative_to(home)) if home != Path("/") and path.is_relative_to(home) else directory
