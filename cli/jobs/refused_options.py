"""Refuse options of launch, torchrun, mpirun and srun that ``dlcluster run`` lacks, with what to write instead."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from cli.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
ON_MASTER: Final = "only launch on the master has it: dlcluster push, then dlcluster run -- launch"
PROCESSES: Final = "--nproc-per-node is the number of processes on each node"
RENDEZVOUS: Final = (
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf"),
    *("--master-addr", "--master-port", "--node-rank"),
)
INSTEAD: Final = {
    **dict.fromkeys(("-N", "--num-nodes"), "the number of nodes is -n"),
    **dict.fromkeys(("-np", "--np", "--num-proc"), f"{PROCESSES}, -n the number of nodes"),
    **dict.fromkeys(("--ntasks-per-node", "--gpus-per-node"), PROCESSES),
    **dict.fromkeys(("-H", "--host", "--hosts"), "a job runs on the cluster's own nodes, -n 2 takes two of them"),
    **dict.fromkeys(
        (spelling for name in RENDEZVOUS for spelling in (name, f"--{name[2:].replace('-', '_')}")),
        "leave it out, the launcher connects the processes itself",
    ),
    "--standalone": "-n 1 runs on one node",
    "-m": "a module goes after python, as in: dlcluster run -- python -m my.train",
    "-x": "--env KEY=VALUE sets a variable, --env KEY passes on one of this shell",
    **{name: f"{ON_MASTER} {name} ..." for name in ("--hostfile", "--min-nodes", "--sync-s3")},
}
"""Advice for each option."""


def refuse_options(function: Function) -> Function:
    """Add the refused options, hidden from the help."""
    for name in INSTEAD:
        function = click.option(
            name,
            f"refused{name.replace('-', '_')}",
            # Refuse it as the last word too, instead of asking for its value.
            is_flag=False,
            flag_value="",
            hidden=True,
            expose_value=False,
            callback=_refuse,
        )(function)
    return function


def _refuse(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        name = parameter.opts[0]
        raise UsageError(f"no such option {name!r}: {INSTEAD[name]}")
