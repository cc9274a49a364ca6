"""Refuse what is no command for ``dlcluster run``, and commands that would start the processes themselves."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from cli.command import END_OF_OPTIONS
from cli.command_group import SRUN
from cli.errors import UsageError
from cli.jobs.script import PYTHON, SCRIPT
from cli.jobs.srun import run_line
from cli.output import printable

OTHER_TOOLS: Final = ("srun", "sbatch", "salloc", "sky", "pcluster")
EXAMPLE: Final = "dlcluster run -n 2 -- train.py"
TASK_FILES: Final = (".yaml", ".yml")
NOTEBOOK: Final = ".ipynb"
NESTED_LAUNCHERS: Final[Mapping[str, str]] = {
    "accelerate": "",
    "deepspeed": "",
    "horovodrun": "--framework horovod",
    "mpirun": "--launcher mpi",
    "mpiexec": "--launcher mpi",
}
"""Programs that the launcher refuses for several processes, each with its option for Horovod's scripts.

The launcher itself replaces torchrun (launcher.options.nested_launchers).
"""
LAUNCH: Final = ("launch",)
"""Subcommand of accelerate that starts processes."""


def refuse_other_tools(command: Sequence[str]) -> None:
    """Raise UsageError for a command of another tool, a notebook, or a YAML file, which describes a job in others."""
    _refuse_notebook(command)
    name = PurePosixPath(command[0]).name
    if name in OTHER_TOOLS:
        line = run_line(command[1:]) if name == SRUN else None
        raise UsageError(f"no {name} here: options go before the command, as in: {line or EXAMPLE}")
    if name.endswith(TASK_FILES):
        file = printable(command[0])
        raise UsageError(f"there are no task files, got {file!r}: name the command, as in: dlcluster run -- train.py")


def refuse_cluster_name(command: Sequence[str], cluster_name: str) -> None:
    """Raise UsageError for the cluster's name in place of a program, which is where other tools have it."""
    if command[0] != cluster_name or PYTHON.fullmatch(command[0]):
        return
    is_task = any(word.endswith(TASK_FILES) for word in command[1:2])
    rest = command[2 if END_OF_OPTIONS in command[1:2] else 1 :]
    line = shlex.join([] if is_task else rest) or "train.py"
    no_tasks = ", and there are no task files" if is_task else ""
    raise UsageError(
        f"{cluster_name} is a cluster{no_tasks}: use --cluster, as in: dlcluster run --cluster {cluster_name} -- {line}"
    )


def refuse_nested_launchers(command: Sequence[str], *, nodes: int) -> None:
    """Raise UsageError with the line to write instead; on a single node the launcher decides."""
    name = PurePosixPath(command[0]).name
    if name not in NESTED_LAUNCHERS or nodes == 1 or (name == "accelerate" and tuple(command[1:2]) != LAUNCH):
        return
    line = f"dlcluster run -- {shlex.join(_script(command))}"
    option = NESTED_LAUNCHERS[name]
    horovod = f"; for Horovod: dlcluster push, then dlcluster run -- launch {option} ..." if option else ""
    raise UsageError(f"no {name} here: dlcluster run starts a process for each GPU itself, as in: {line}{horovod}")


def _script(command: Sequence[str]) -> Sequence[str]:
    """Return the part of the command that each process runs."""
    starts = (at for at, word in enumerate(command) if word.endswith(SCRIPT) or PYTHON.fullmatch(word))
    first = next(starts, None)
    return ("train.py",) if first is None else command[first:]


def _refuse_notebook(command: Sequence[str]) -> None:
    """Raise UsageError with the line that converts it if the command runs a notebook as a program or with python."""
    script = command[1] if PYTHON.fullmatch(command[0]) and len(command) > 1 else command[0]
    if script.endswith(NOTEBOOK):
        line = f"jupyter nbconvert --to script {printable(shlex.quote(script))}"
        raise UsageError(f"a notebook is not a script: {line} makes one")
