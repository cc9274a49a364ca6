"""Refuse options of ``launch`` and ``srun`` that ``dlcluster run`` lacks, with the line to write instead."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from cli.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
ON_MASTER: Final = "only launch on the master has it: dlcluster push, then dlcluster run -- launch"
INSTEAD: Final = {
    **dict.fromkeys(("-N", "--num-nodes"), "the number of nodes is -n"),
    "-m": "a module goes after python, as in: dlcluster run -- python -m my.train",
    "-x": "--env KEY=VALUE sets a variable, --env KEY passes on one of this shell",
    **{name: f"{ON_MASTER} {name} ..." for name in ("--hostfile", "--min-nodes", "--grace", "--sync-s3")},
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


def _refuse(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and not context.resilient_parsing:
        name = parameter.opts[0]
        raise UsageError(f"no such option {name!r}: {INSTEAD[name]}")
