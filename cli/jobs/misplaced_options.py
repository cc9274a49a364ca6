"""Refuse an option of the script that stands before its name, and print the line with the right order."""

import difflib
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import click

from cli.command import END_OF_OPTIONS, ClusterCommand
from cli.errors import UsageError
from cli.jobs.launch_options import record_typed_nnodes_option
from cli.jobs.script import PYTHON, SCRIPT
from cli.jobs.unsupported_options import refuse_given_options

MISSPELLED: Final = 0.8
"""Smallest ratio of difflib at which an unknown option counts as one of run: ``--nprocs-per-node``, not ``--lr``."""
EXAMPLE: Final = ("train.py",)
ELLIPSIS: Final = "..."
"""Stands for the options of run."""


class RunCommand(ClusterCommand):
    """The ``run`` command, which explains where options of the user's script belong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        record_typed_nnodes_option(ctx, args)
        typed = tuple(args)  # click removes from `args` what it has parsed
        ctx.token_normalize_func = _with_hyphens
        try:
            extra = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name, command_options = error.option_name, _own_options(self)
            at, similar = (
                _position(name, typed),
                difflib.get_close_matches(name, command_options, 1, MISSPELLED),
            )
            if at is None or similar:
                # click would also suggest the hidden options, which are refused.
                raise click.NoSuchOption(name, possibilities=similar, ctx=ctx) from error
            line = _right_order(typed, at, command_options)
            typed_name = name if _is_short(name) else typed[at].partition("=")[0]
            raise UsageError(
                f"no such option {typed_name!r}: options of the script go after its name, as in: {line}"
            ) from error
        refuse_given_options(ctx)
        return extra


def _with_hyphens(name: str) -> str:
    """Return an option as run spells it; launch and torchrun also take ``--nproc_per_node``."""
    return name.replace("_", "-")


def _own_options(command: click.Command) -> dict[str, bool]:
    """Return the options of the help, each with True if it takes a value."""
    shown = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    return {name: not option.is_flag for option in shown for name in (*option.opts, *option.secondary_opts)}


def _position(option: str, args: Sequence[str]) -> int | None:
    """Return the index of the first argument with this option; short options may be joined, as in ``-lr``."""
    names = (word[: len(option)] if _is_short(option) else _with_hyphens(word.partition("=")[0]) for word in args)
    return next((at for at, name in enumerate(names) if name == option), None)


def _is_short(option: str) -> bool:
    return len(option) == len("-l")


def _right_order(args: Sequence[str], at: int, own: Mapping[str, bool]) -> str:
    """Return the line in which the options from argument `at` to the command follow it, except run's own.

    Run's own options are not repeated, because ``--env`` may contain a secret.
    """
    before, command = _split(args[at:])
    moved, has_own, remaining = list[str](), at > 0, iter(before)
    for word in remaining:
        typed_name, equals, _ = word.partition("=")
        name = _with_hyphens(typed_name)
        if name not in own:
            moved.append(word)
            continue
        has_own = True
        if own[name] and not equals:
            next(remaining, None)  # its value
    return shlex.join(["dlcluster", "run", *([ELLIPSIS] if has_own else []), END_OF_OPTIONS, *command, *moved])


def _split(args: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the arguments before the command, and the command."""
    if END_OF_OPTIONS in args:
        at = args.index(END_OF_OPTIONS)
        return args[:at], args[at + 1 :] or EXAMPLE
    starts = (at for at, word in enumerate(args) if word.endswith(SCRIPT) or PYTHON.fullmatch(word))
    at = next(starts, len(args))
    return args[:at], args[at:] or EXAMPLE
